#include "harness/cli/summary.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <vector>

#include "harness/io/aligned_text.h"
#include "harness/io/bytes.h"

namespace kv::cli {
namespace {

using Strings = std::vector<std::string>;
using Cells = std::vector<const results::CellResult*>;

// More sweep points than this are summed up by experiment.
constexpr size_t kMostSweepPoints = 8;

std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

std::string number(const results::Number& value, const char* pattern) {
  return value ? format(pattern, *value) : "-";
}
std::string number(const results::Integer& value, const char* pattern) {
  return value ? format(pattern, static_cast<double>(*value)) : "-";
}

// "12.3 (11.9 … 12.8)"; without the interval where there were too few repetitions for one.
std::string with_interval(const results::Number& value, const results::Number& low,
                          const results::Number& high, const char* pattern) {
  if (!value) return "-";
  std::string text = number(value, pattern);
  if (low && high) text += " (" + number(low, pattern) + "–" + number(high, pattern) + ")";
  return text;
}

std::string bytes_text(std::initializer_list<results::Integer> parts) {
  int64_t total = 0;
  for (const results::Integer& part : parts) total += part.value_or(0);
  return io::human_bytes(total);
}

std::string row_name(const results::CellResult& row) {
  std::string name = row.variant;
  if (!row.arm.empty()) name += "  " + row.arm;
  if (row.chunk_tokens) name += " " + results::text_of(row.chunk_tokens);
  return name + (row.is_aa_test() ? "  [A/A test]" : "");
}

std::string verdict_text(const results::CellResult& row) {
  if (row.verdict == "baseline" || !row.ratio_p50) return row.verdict;
  return with_interval(row.ratio_p50, row.ratio_ci_low, row.ratio_ci_high, "%.2f") +
         (row.is_aa_test() ? "" : " " + row.verdict) + (row.noise.empty() ? "" : ", noisy");
}

std::string percent(const std::optional<double>& share) {
  return share ? format("%.0f %%", 100 * *share) : "-";
}

// With the interval of the time: the slower, the smaller the share.
std::string cold_share(const results::CellResult& row) {
  const std::optional<double> share = row.cold_ceiling_share, time = row.cold_attend_p50_us,
                              low = row.cold_ci_low_us, high = row.cold_ci_high_us;
  if (!share || !time || !low || !high) return percent(share);
  const double scaled = 100 * *share * *time;
  return percent(share) + " (" + format("%.0f", scaled / *high) + "–" + format("%.0f", scaled / *low) + ")";
}

// One kind of table for each kind of experiment or phase: its head, and a row.
enum class Kind { kDecode, kRagged, kPrefill, kQuality, kStream, kGenerate };

Kind kind_of(const results::CellResult& row) {
  if (row.experiment == "quality" || row.experiment == "recall") return Kind::kQuality;
  if (row.experiment == "stream") return Kind::kStream;
  if (row.experiment == "generate") return Kind::kGenerate;
  if (row.phase == "prefill") return Kind::kPrefill;
  return row.lengths.empty() ? Kind::kDecode : Kind::kRagged;
}

Strings head_of(Kind kind) {
  switch (kind) {
    case Kind::kDecode:
      return {"variant",         "held",           "step p50, us (95 %)", "% of read GB/s", "error",
              "cold / baseline", "step / baseline"};
    case Kind::kRagged:
      return {"variant", "held", "step p50, us (95 %)", "waste", "error", "step / baseline"};
    case Kind::kPrefill:
      return {"variant and arm", "workspace", "prefill p50, us (95 %)",
              "tokens/s",        "error",     "time / materialised"};
    case Kind::kQuality:
      return {"variant", "bytes a token",  "perplexity", "loss change, nats (95 %)",
              "KL mean", "same top token", "verdict"};
    case Kind::kStream:
      return {"variant", "bytes a token", "perplexity", "loss change, nats (95 %)", "tokens/s", "verdict"};
    case Kind::kGenerate:
      return {"variant", "bytes a token", "temperature", "same tokens p50",
              "min",     "same texts",    "of",          "tokens/s"};
  }
  return {};
}

std::string perplexity_text(const results::CellResult& row) {
  return number(row.perplexity, "%.4g") +
         (row.perplexity_se ? " ± " + number(row.perplexity_se, "%.2g") : "");
}

std::string loss_change_text(const results::CellResult& row) {
  if (row.verdict == "baseline") return "-";
  return with_interval(row.loss_change, row.loss_change_ci_low, row.loss_change_ci_high, "%+.2g");
}

// Of a cell that was measured; but for its name.
Strings fields_of(const results::CellResult& row) {
  const std::string held = bytes_text({row.bytes_payload, row.bytes_metadata, row.bytes_slack}),
                    step = with_interval(row.step_p50_us, row.step_ci_low_us, row.step_ci_high_us, "%.1f"),
                    error = number(row.metric("err_rel_l2"), "%.1e"),
                    token_bytes = number(row.held_bytes_per_token, "%.0f"),
                    rate = number(row.tokens_per_s, "%.0f");
  switch (kind_of(row)) {
    case Kind::kDecode: {
      const std::string cold =
          with_interval(row.cold_ratio_p50, row.cold_ratio_ci_low, row.cold_ratio_ci_high, "%.2f");
      return {held, step, cold_share(row), error, cold, verdict_text(row)};
    }
    case Kind::kRagged:
      return {held, step, percent(row.waste_share), error, verdict_text(row)};
    case Kind::kPrefill:
      return {bytes_text({row.bytes_workspace_peak}),
              with_interval(row.prefill_p50_us, row.prefill_ci_low_us, row.prefill_ci_high_us, "%.0f"),
              number(row.prefill_tokens_per_s, "%.0f"), error, verdict_text(row)};
    case Kind::kQuality: {
      const std::string top = row.top1_agreement ? format("%.2f %%", 100 * *row.top1_agreement) : "-";
      return {token_bytes, perplexity_text(row), loss_change_text(row), number(row.kl_mean, "%.2e"),
              top,         row.verdict};
    }
    case Kind::kStream:
      return {token_bytes, perplexity_text(row), loss_change_text(row), rate, row.verdict};
    case Kind::kGenerate:
      return {token_bytes,
              number(row.temperature, "%g"),
              number(row.common_tokens_p50, "%g"),
              number(row.common_tokens_min, "%g"),
              number(row.same_texts, "%g"),
              number(row.batch, "%g"),
              rate};
  }
  return {};
}

Strings table_row(const results::CellResult& row) {
  Strings fields{row_name(row)};
  if (row.status == results::Status::kOk) {
    for (std::string& field : fields_of(row)) fields.push_back(std::move(field));
  } else {
    fields.push_back(results::text_of(row.status));
    fields.resize(head_of(kind_of(row)).size());
  }
  return fields;
}

size_t widest_line(const std::string& text) {
  size_t widest = 0;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    widest = std::max(widest, io::text_width(text.substr(from, end - from)));
    from = end + 1;
  }
  return widest;
}

// At most `most` characters: of what is longer the middle is left out. Names are ASCII.
std::string shortened(const std::string& name, size_t most) {
  if (io::text_width(name) <= most) return name;
  const size_t tail = (most - 1) / 2;
  return name.substr(0, most - 1 - tail) + "…" + name.substr(name.size() - tail);
}

// As aligned text that fits. Where it would not, names get shorter, down to kShortest; then columns go, the last but one first.
std::string fitted(std::vector<Strings> table) {
  constexpr size_t kShortest = 32;
  for (;;) {
    std::string text = io::aligned_text(table);
    size_t widest = widest_line(text), longest = 0;
    if (widest <= kSummaryWidth) return text;
    for (const Strings& row : table) longest = std::max(longest, io::text_width(row.front()));
    const size_t excess = widest - kSummaryWidth;
    if (longest > kShortest) {
      const size_t most = std::max(kShortest, longest - std::min(longest, excess));
      for (Strings& row : table) row.front() = shortened(row.front(), most);
    } else if (table.front().size() > 2) {
      for (Strings& row : table) row.erase(row.end() - 2);
    } else {
      return text;
    }
  }
}

// "32/8 heads of 128, 2 threads".
std::string shape_of(const results::CellResult& row) {
  return results::text_of(row.q_heads) + "/" + results::text_of(row.kv_heads) + " heads of " +
         results::text_of(row.head_dim) + ", " + results::text_of(row.threads) +
         (row.threads == 1 ? " thread" : " threads");
}

std::string sweep_point_name(const results::CellResult& row) {
  using results::text_of;
  return row.experiment + ", " + row.workload + ", batch " + text_of(row.batch) + ", " +
         (row.lengths.empty() ? text_of(row.seq_len) + " tokens" : "lengths " + row.lengths) +
         (row.head_dim ? ", " + shape_of(row) : "") +
         (row.distance ? ", distance " + text_of(row.distance) : "") +
         (row.passage_tokens ? ", passage " + text_of(row.passage_tokens) : "");
}

// Cells in their order, in groups of one name.
std::vector<std::pair<std::string, Cells>> grouped(std::span<const results::CellResult> cells,
                                                   std::string (*name_of)(const results::CellResult&)) {
  std::vector<std::pair<std::string, Cells>> groups;
  for (const results::CellResult& row : cells) {
    const std::string name = name_of(row);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == name; });
    if (group == groups.end()) group = groups.insert(groups.end(), {name, {}});
    group->second.push_back(&row);
  }
  return groups;
}

// "0.42–0.97" of what is there.
std::string range(const Cells& cells, const char* pattern,
                  results::Number (*value)(const results::CellResult&)) {
  results::Number low, high;
  for (const results::CellResult* row : cells) {
    const results::Number x = value(*row);
    if (!x) continue;
    low = low ? std::min(*low, *x) : *x;
    high = high ? std::max(*high, *x) : *x;
  }
  if (!low) return "-";
  const std::string from = format(pattern, *low), to = format(pattern, *high);
  return from == to ? from : from + "–" + to;
}

// What a variant's cells of one experiment range over.
Strings variant_row(const std::string& name, const Cells& cells) {
  using Cell = results::CellResult;
  const auto ok = std::count_if(cells.begin(), cells.end(),
                                [](const Cell* row) { return row->status == results::Status::kOk; });
  return {name,
          std::to_string(ok) + " of " + std::to_string(cells.size()),
          range(cells, "%.2f", [](const Cell& row) { return row.ratio_p50; }),
          range(cells, "%.2f", [](const Cell& row) { return row.cold_ratio_p50; }),
          range(cells, "%.1e", [](const Cell& row) { return row.metric("err_rel_l2"); }),
          range(cells, "%+.2g", [](const Cell& row) { return row.loss_change; })};
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

std::string experiment_tables(std::span<const results::CellResult> cells, size_t sweep_points) {
  std::string text =
      "\n" + std::to_string(sweep_points) +
      " sweep points; what the cells of a variant range over, with each of them in the report:\n";
  const auto experiment = [](const results::CellResult& row) { return row.experiment; };
  for (const auto& [name, own] : grouped(cells, experiment)) {
    std::vector<Strings> table{
        {"variant", "measured", "time / baseline", "cold / baseline", "error", "loss change"}};
    std::vector<std::pair<std::string, Cells>> variants;
    for (const results::CellResult* row : own) {
      auto of = std::find_if(variants.begin(), variants.end(),
                             [&](const auto& v) { return v.first == row_name(*row); });
      if (of == variants.end()) of = variants.insert(variants.end(), {row_name(*row), {}});
      of->second.push_back(row);
    }
    for (const auto& [variant, its] : variants) table.push_back(variant_row(variant, its));
    text += "\n" + name + "\n" + fitted(without_empty_columns(table));
  }
  return text;
}

std::string aa_line(std::span<const results::CellResult> cells) {
  int tests = 0, decided = 0;
  for (const results::CellResult& row : cells) {
    if (!row.is_aa_test() || !row.ratio_ci_low || !row.ratio_ci_high) continue;
    ++tests;
    decided += *row.ratio_ci_low > 1.0 || *row.ratio_ci_high < 1.0;
  }
  if (tests == 0) return "";
  return "\nA/A test: " + std::to_string(decided) + " of " + std::to_string(tests) +
         " comparisons of the baseline with itself found a difference (5 % are to be expected)\n";
}

// How quiet the machine was.
std::string noise_line(std::span<const results::CellResult> cells) {
  int timed = 0, noisy = 0;
  std::optional<double> steal, others;
  const results::CellResult* first = nullptr;
  for (const results::CellResult& row : cells) {
    if (!row.step_p50_us && !row.prefill_p50_us) continue;
    ++timed;
    noisy += !row.noise.empty();
    if (!row.noise.empty() && !first) first = &row;
    if (row.steal_share) steal = std::max(steal.value_or(0), *row.steal_share);
    if (row.others_share) others = std::max(others.value_or(0), *row.others_share);
  }
  if (timed == 0) return "";
  std::string text = "Noise: other processes took at most " + percent(others) +
                     " of the processors, the hypervisor " + percent(steal) + "; " + std::to_string(noisy) +
                     " of " + std::to_string(timed) + " timed cells are noisy";
  return text + (first ? ", as " + first->cell + ": " + first->noise : "") + "\n";
}

}  // namespace

std::string summary(std::span<const results::CellResult> cells) {
  const auto points = grouped(cells, sweep_point_name);
  if (points.size() > kMostSweepPoints)
    return experiment_tables(cells, points.size()) + aa_line(cells) + noise_line(cells);
  std::string text;
  for (const auto& [name, own] : points) {
    std::vector<Strings> table{head_of(kind_of(*own.front()))};
    for (const results::CellResult* row : own) table.push_back(table_row(*row));
    text += "\n" + name + "\n" + fitted(std::move(table));
  }
  return text + aa_line(cells) + noise_line(cells);
}

}  // namespace kv::cli
