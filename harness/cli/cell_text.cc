#include "harness/cli/cell_text.h"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <unordered_map>

#include "harness/io/aligned_text.h"

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

// Makes the widest column of names narrower, by as much as the table is too wide. False if none may be.
bool narrow_names(std::vector<Strings>& table, size_t name_columns, size_t shortest, size_t excess) {
  size_t column = 0;
  for (size_t i = 1; i < name_columns; ++i) {
    if (widest_in(table, i) > widest_in(table, column)) column = i;
  }
  const size_t widest = widest_in(table, column);
  if (widest <= shortest) return false;
  const size_t most = std::max(shortest, widest - std::min(widest, excess));
  for (Strings& row : table) row[column] = shortened(row[column], most);
  return true;
}

// "32/8 heads of 128, 2 threads".
std::string shape_of(const results::CellResult& row) {
  return results::text_of(row.q_heads) + "/" + results::text_of(row.kv_heads) + " heads of " +
         results::text_of(row.head_dim) + ", " + results::text_of(row.threads) +
         (row.threads == 1 ? " thread" : " threads");
}

}  // namespace

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

std::string percent(const std::optional<double>& share) {
  return share ? format("%.0f %%", 100 * *share) : "-";
}

std::string with_interval(const results::Number& value, const results::Number& low,
                          const results::Number& high, const char* pattern) {
  if (!value) return "-";
  std::string text = number(value, pattern);
  if (low && high) text += " (" + number(low, pattern) + "–" + number(high, pattern) + ")";
  return text;
}

std::string row_name(const results::CellResult& row) {
  std::string name = row.variant;
  if (!row.arm.empty()) name += "  " + row.arm;
  if (row.chunk_tokens) name += " " + results::text_of(row.chunk_tokens);
  if (row.keeps_all == 1) name += "  [keeps all]";
  return name + (row.is_aa_test() ? "  [A/A test]" : "");
}

std::string sweep_point_name(const results::CellResult& row) {
  using results::text_of;
  return row.experiment + ", " + row.workload + ", batch " + text_of(row.batch) + ", " +
         (row.lengths.empty() ? text_of(row.seq_len) + " tokens" : "lengths " + row.lengths) +
         (row.head_dim ? ", " + shape_of(row) : "") +
         (row.distance ? ", distance " + text_of(row.distance) : "") +
         (row.passage_tokens ? ", passage " + text_of(row.passage_tokens) : "") +
         (row.machine.empty() ? ""
                              : ", " + row.arrivals + ", " + row.machine + " of memory, steps of " +
                                    text_of(row.step_tokens) + " tokens");
}

std::vector<std::pair<std::string, Cells>> grouped(std::span<const results::CellResult* const> cells,
                                                   std::string (*name_of)(const results::CellResult&)) {
  std::vector<std::pair<std::string, Cells>> groups;
  std::unordered_map<std::string, size_t> group_of;
  for (const results::CellResult* row : cells) {
    const auto [found, is_new] = group_of.emplace(name_of(*row), groups.size());
    if (is_new) groups.push_back({found->first, {}});
    groups[found->second].second.push_back(row);
  }
  return groups;
}

std::string shortened(const std::string& text, size_t most) {
  if (io::text_width(text) <= most) return text;
  const size_t tail = (most - 1) / 2;
  return text.substr(0, most - 1 - tail) + "…" + text.substr(text.size() - tail);
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

std::string wrapped(const std::string& sentence, size_t width) {
  std::string text, word;
  size_t used = 0;
  std::istringstream words(sentence);
  while (words >> word) {
    const size_t needed = io::text_width(word) + (used > 0 ? 1 : 0);
    if (used > 0 && used + needed > width) {
      text += "\n  ";
      used = 2;
    } else if (used > 0) {
      text += " ";
    }
    text += word;
    used += needed;
  }
  return text + "\n";
}

}  // namespace kv::cli
