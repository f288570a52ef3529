#include "harness/cli/summary_tables.h"

#include <algorithm>
#include <iterator>

#include "harness/answers/conclusion.h"
#include "harness/experiments/experiment.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/bytes.h"
#include "harness/measure/prediction_columns.h"
#include "harness/measure/tier_columns.h"
#include "harness/measure/time_columns.h"
#include "harness/results/cell_columns.h"

namespace kv::cli {
namespace {

std::span<const experiments::TableColumn> columns_of(const results::Row& row) {
  const experiments::Experiment* experiment = experiments::find_experiment(row[results::kExperiment]);
  return experiment ? experiment->table : experiments::kStepTable;
}

Strings head_of(const results::Row& row) {
  Strings head{"variant"};
  for (const experiments::TableColumn& column : columns_of(row))
    head.push_back(std::string(column.head) + std::string(column.unit));
  return head;
}

Strings table_row(const results::Row& row) {
  Strings fields{row_name(row)};
  const auto columns = columns_of(row);
  if (row[results::kStatus] == results::Status::kOk) {
    for (const experiments::TableColumn& column : columns) fields.push_back(column.text(row));
  } else {
    fields.push_back(results::text_of(row[results::kStatus]));
    fields.resize(1 + columns.size());
  }
  return fields;
}

// "0.42–0.97" over the values present.
std::string range(const Cells& cells, const char* pattern, const results::AnyColumn& column) {
  results::Number low, high;
  for (const results::Row* row : cells) {
    const results::Number x = row->number(column);
    if (!x) continue;
    low = low ? std::min(*low, *x) : *x;
    high = high ? std::max(*high, *x) : *x;
  }
  if (!low) return "-";
  const std::string from = format(pattern, *low), to = format(pattern, *high);
  return from == to ? from : from + "–" + to;
}

// The ratio of times by which an experiment's cells are ranked.
const results::AnyColumn& ratio_of(const Cells& cells) {
  const answers::Measure* time = answers::measure_of(answers::Kind::kTime, cells);
  return time && !time->ratio.empty() ? experiments::cell_table().at(time->ratio) : measure::kRatioP50;
}

// A column of the table of ranges.
struct RangeColumn {
  const results::AnyColumn* of;
  std::string_view head;
  const char* pattern;
};

// The ranges of a variant's cells of one experiment.
Strings variant_row(const std::string& name, const Cells& cells, std::span<const RangeColumn> columns) {
  const auto ok = std::ranges::count_if(
      cells, [](const results::Row* row) { return (*row)[results::kStatus] == results::Status::kOk; });
  Strings fields{name, std::to_string(ok) + " of " + std::to_string(cells.size())};
  for (const RangeColumn& column : columns) fields.push_back(range(cells, column.pattern, *column.of));
  return fields;
}

// Sort key if rows must be left out: time if timed, else error.
double order_of(const Cells& cells, std::span<const RangeColumn> columns) {
  double order = 1e300;
  for (const results::Row* row : cells) {
    const auto has = [&](const RangeColumn& column) { return row->number(*column.of).has_value(); };
    if (const auto first = std::ranges::find_if(columns, has); first != columns.end())
      order = std::min(order, *row->number(*first->of));
  }
  return order;
}

// Leaves out columns in which no row has a value.
std::vector<Strings> without_empty_columns(std::vector<Strings> table) {
  for (size_t column = table.front().size(); column-- > 0;) {
    const bool empty =
        std::all_of(table.begin() + 1, table.end(), [&](const Strings& row) { return row[column] == "-"; });
    if (!empty) continue;
    for (Strings& row : table) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
  return table;
}

// "256.0 KiB, 12.6, 10 %": bytes that a step reads from a tier, their rate in GB/s, and its share of the tier's
// ceiling.
std::string tier_text(const results::Integer& bytes, const results::Number& gbps,
                      const results::Number& share) {
  if (!bytes) return "-";
  return io::human_bytes(*bytes) + (gbps ? ", " + number(gbps, "%.3g") : "") +
         (share ? ", " + percent(share) : "");
}

// Columns in the order to drop: a narrow terminal keeps the last.
Strings tiers_row(const results::Row& row) {
  return {
      row_name(row),
      tier_text(row[measure::kReadHotBytes], row[measure::kHotReadGbps], row[measure::kHotCeilingShare]),
      tier_text(row[measure::kReadWarmBytes], row[measure::kWarmReadGbps], row[measure::kWarmCeilingShare]),
      row[measure::kTierBound].empty()
          ? "-"
          : number(row[measure::kTierBoundUs], "%.1f") + " " + row[measure::kTierBound],
      percent(row[measure::kDiskDeviceShare]),
      tier_text(row[measure::kReadDiskBytes], row[measure::kDiskReadGbps], row[measure::kDiskCeilingShare])};
}

// Table of the cells whose placement has several tiers.
std::string tiers_table(const Cells& cells, size_t width) {
  std::vector<Strings> table{
      {"a step reads, GB/s, % of ceiling", "hot", "warm", "bound, us", "from a device", "disk"}};
  for (const results::Row* row : cells) {
    if ((*row)[measure::kBytesWarm] && (*row)[results::kStatus] == results::Status::kOk)
      table.push_back(tiers_row(*row));
  }
  return table.size() == 1 ? "" : fitted(without_empty_columns(std::move(table)), width);
}

// Table of the cells that verified drafts; below it, the reasons of those that cannot.
std::string drafts_table(const Cells& cells, size_t width) {
  std::vector<Strings> table;
  std::string refused;
  for (const results::Row* row : cells) {
    if (!(*row)[measure::kDraftTokens] || (*row)[results::kStatus] != results::Status::kOk) continue;
    if (table.empty())
      table.push_back({std::to_string(*(*row)[measure::kDraftTokens]) + " drafts per step",
                       "tokens that stay", "step, us", "per token / plain step"});
    if (!(*row)[measure::kDraftRefused].empty()) {
      refused += wrapped("  no drafts with " + row_name(*row) + ": " + (*row)[measure::kDraftRefused], width);
      continue;
    }
    table.push_back({row_name(*row), number((*row)[measure::kDraftStaysMean], "%.2f"),
                     number((*row)[measure::kDraftStepP50Us], "%.1f"),
                     with_interval(*row, measure::kDraftRatioP50, "%.2f")});
  }
  return (table.size() < 2 ? "" : fitted(std::move(table), width)) + refused;
}

using Cell = results::Row;

constexpr size_t kQuestions = 3;

std::vector<Strings> answer_rows(const std::string& point, const Cells& all) {
  std::vector<Strings> rows;
  for (const answers::Answer& answer : answers::answers_at(all)) {
    Strings& row =
        rows.emplace_back(Strings{rows.empty() ? point : "", answer.question, "-", "-", answer.text});
    if (!answer.best) continue;
    row[2] = row_name(*answer.best) + (answer.as_good ? " + " + std::to_string(answer.as_good) : "");
    row[3] = answers::error_of(*answer.best).in_short(*answer.best);
  }
  return rows;
}

// "decode, batch 8, 2048 tokens": what tells the first point of these from the others; or "decode (1 of 3), 2048 tokens".
std::string point_text(const Cell& row, const Cells& points, bool is_alone) {
  std::string text = row[results::kExperiment];
  if (points.size() == 1 || is_alone)
    return text + (points.size() > 1 ? " (1 of " + std::to_string(points.size()) + ")" : "") + ", " +
           length_text(row) + own_axes(row);
  const auto add = [&](std::string (*part)(const Cell&)) {
    const std::string own = part(row);
    if (std::ranges::any_of(points, [&](const Cell* other) { return part(*other) != own; }))
      text += ", " + own;
  };
  add([](const Cell& of) { return of[results::kWorkload]; });
  add([](const Cell& of) { return "batch " + results::text_of(of[results::kBatch]); });
  add(heads_of);
  add(threads_of);
  return text + ", " + length_text(row) + own_axes(row, points);
}

// The sweep points of the experiment's longest length.
std::vector<Cells> longest_points(const Cells& cells) {
  results::Integer longest;
  for (const Cell* row : cells) longest = std::max(longest, (*row)[results::kSeqLen]);
  Cells there;
  for (const Cell* row : cells) {
    if ((*row)[results::kSeqLen] == longest) there.push_back(row);
  }
  return answers::points_of(there);
}

}  // namespace

std::string beyond_limit_lines(const Cells& cells) {
  std::string text;
  for (const auto& [name, own] : grouped(cells, [](const Cell& row) { return row[results::kExperiment]; })) {
    Cells left_out;
    for (const Cells& point : longest_points(own))
      std::ranges::copy_if(point, std::back_inserter(left_out), [](const Cell* row) {
        return (*row)[results::kStatus] == results::Status::kOk && !answers::keeps_limit(*row);
      });
    if (left_out.empty()) continue;
    const Cell& first = *left_out.front();
    text += "Limit: only caches of " + std::string(answers::error_of(first).limit_text) +
            " can be the fastest or the smallest, because others cannot replace the full cache; " +
            std::to_string(left_out.size()) + " at the longest length are left out, such as " +
            first[results::kCell] + ": " + answers::error_of(first).text(first) + "\n";
  }
  return text;
}

std::string answers(const Cells& cells, size_t width, size_t most_lines) {
  std::vector<std::vector<Cells>> experiments;
  size_t points = 0;
  for (const auto& [name, own] : grouped(cells, [](const Cell& row) { return row[results::kExperiment]; })) {
    experiments.push_back(longest_points(own));
    points += experiments.back().size();
  }
  const bool all = 1 + points * kQuestions <= most_lines;
  std::vector<Strings> table{{"at the longest length", "is", "variant (+ others tied)", "error", "value"}};
  for (const std::vector<Cells>& own : experiments) {
    Cells firsts;
    for (const Cells& point : own) firsts.push_back(point.front());
    for (const Cells& point : std::span(own).first(all ? own.size() : 1)) {
      const std::string name = point_text(*point.front(), firsts, !all);
      for (Strings& row : answer_rows(name, point)) table.push_back(std::move(row));
    }
  }
  constexpr size_t kNarrow =
      90;  // columns of a terminal: below, names are worth more than the error beside them
  return table.size() > 1 ? fitted(std::move(table), width, 3, width < kNarrow ? 20 : 10) : "";
}

std::string sweep_point_table(const Cells& cells, size_t width) {
  std::vector<Strings> table{head_of(*cells.front())};
  for (const results::Row* row : cells) table.push_back(table_row(*row));
  return fitted(std::move(table), width) + tiers_table(cells, width) + drafts_table(cells, width);
}

std::string experiment_table(const Cells& cells, size_t width, size_t most_rows) {
  const results::AnyColumn &ratio = ratio_of(cells), &error = experiments::cell_table().at("err_rel_l2");
  const RangeColumn columns[] = {{&ratio, ratio.heading, "%.2f"},
                                 {&measure::kColdRatioP50, measure::kColdRatioP50.heading, "%.2f"},
                                 {&error, experiments::kErrorText.head, "%.1e"},
                                 {&measure::kLossChange.value(), measure::kLossChange.heading, "%+.2g"}};
  std::vector<std::pair<std::string, Cells>> variants = grouped(cells, row_name);
  std::string left_out;
  if (variants.size() > most_rows) {
    left_out = "  … and " + std::to_string(variants.size() - most_rows) + " more\n";
    std::ranges::stable_sort(variants, {}, [&](const auto& one) { return order_of(one.second, columns); });
    variants.resize(most_rows);
  }
  std::vector<Strings> table{{"variant", "measured"}};
  for (const RangeColumn& column : columns) table.front().emplace_back(column.head);
  for (const auto& [variant, its] : variants) table.push_back(variant_row(variant, its, columns));
  return fitted(without_empty_columns(table), width) + left_out;
}

}  // namespace kv::cli
