#include "harness/cli/cell_text.h"

#include <algorithm>
#include <sstream>

#include "harness/io/text.h"
#include "harness/planner/serving_columns.h"
#include "harness/results/cell_columns.h"

namespace kv::cli {
namespace {

size_t widest_line(const std::string& text) {
  size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, io::text_width(line));
  return widest;
}

size_t widest_in(const std::vector<Strings>& table, size_t column) {
  size_t widest = 0;
  for (const Strings& row : table) widest = std::max(widest, io::text_width(row[column]));
  return widest;
}

// Narrows the columns of names by the table's excess width, always the widest, down to `shortest`. Returns false if none may shrink.
bool narrow_names(std::vector<Strings>& table, size_t name_columns, size_t shortest, size_t excess) {
  std::vector<size_t> widths;
  for (size_t i = 0; i < name_columns; ++i) widths.push_back(widest_in(table, i));
  bool narrowed = false;
  for (; excess > 0; --excess) {
    size_t& widest = *std::ranges::max_element(widths);
    if (widest <= shortest) break;
    --widest;
    narrowed = true;
  }
  for (Strings& row : table) {
    for (size_t i = 0; i < name_columns; ++i)
      if (io::text_width(row[i]) > widths[i]) row[i] = io::shortened(row[i], widths[i]);
  }
  return narrowed;
}

}  // namespace

std::string length_text(const results::Row& row) {
  using results::text_of;
  if (!row[planner::kRequests]) return text_of(row[results::kSeqLen]) + " tokens";
  return text_of(row[planner::kRequests]) + " requests of " + text_of(row[planner::kPromptP50Tokens]) +
         " + " + text_of(row[planner::kOutputP50Tokens]) + " tokens (p50)";
}

std::string sweep_point_name(const results::Row& row) {
  std::string text = row[results::kExperiment] + ", " + row[results::kWorkload] + ", batch " +
                     results::text_of(row[results::kBatch]) + ", " + length_text(row);
  if (row[results::kHeadDim])
    text += ", " + experiments::layers_text(row, ", ") + heads_of(row) + ", " + threads_of(row);
  if (const std::string& order = row[results::kKOrder]; row[results::kHeadDim] && !order.empty())
    text += ", " + results::titled(results::kKOrder, order);
  return text + own_axes(row);
}

std::string heads_of(const results::Row& row) {
  using results::text_of;
  return text_of(row[results::kQHeads]) + "/" + text_of(row[results::kKvHeads]) + " heads of " +
         text_of(row[results::kHeadDim]);
}

std::string threads_of(const results::Row& row) {
  return results::text_of(row[results::kThreads]) + (row[results::kThreads] == 1 ? " thread" : " threads");
}

std::string own_axes(const results::Row& row, const Cells& among) {
  std::string text;
  const experiments::Experiment* experiment = experiments::find_experiment(row[results::kExperiment]);
  if (!experiment) return text;
  for (const config::AnyAxis* axis : experiment->info.axes) {
    if (axis == &config::kBatch || axis == &config::kSeqLen || axis->column.title.empty()) continue;
    const std::string value = row.text(axis->column);
    const auto has_it = [&](const results::Row* other) { return other->text(axis->column) == value; };
    if (among.empty() || !std::ranges::all_of(among, has_it))
      text += ", " + results::titled(axis->column, value);
  }
  return text;
}

std::string fitted(std::vector<Strings> table, size_t width, size_t name_columns, size_t shortest_name) {
  for (;;) {
    std::string text = io::aligned_text(table, name_columns);
    const size_t widest = widest_line(text);
    if (widest <= width) return text;
    if (narrow_names(table, name_columns, shortest_name, widest - width)) continue;
    if (table.front().size() <= name_columns + 1) return text;
    for (Strings& row : table) row.erase(row.end() - 2);
  }
}

std::string duration(double seconds) {
  if (seconds < 99.5) return number(results::Number(seconds), "%.0f s");
  return seconds < 99.5 * 60 ? number(results::Number(seconds / 60), "%.1f min")
                             : number(results::Number(seconds / 3600), "%.1f h");
}

}  // namespace kv::cli
