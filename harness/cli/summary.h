// A run's final output: the answer first, then the tables that fit.
#pragma once

#include <span>
#include <string>

#include "harness/results/cell_columns.h"

namespace kv::cli {

inline constexpr size_t kSummaryWidth = 120, kSummaryLines = 36;

struct SummaryOptions {
  bool full = false;  // every sweep point's table, at any length
  size_t width = kSummaryWidth;
  std::string more = {};  // the command that shows all tables
  std::string also = {};  // a line about side tables
};

// At most kSummaryLines lines of at most `width` characters: the fastest, smallest and most exact variant at the
// longest length of each experiment, then a table a sweep point, or a table an experiment if those do not fit. The
// report, cells.csv and the full tables have the rest.
std::string summary(std::span<const results::Row> cells, const SummaryOptions& options = {});

// The same as JSON: the answers at every sweep point and all cells (fields: results/json.md).
std::string summary_json(std::span<const results::Row> cells, const std::string& folder, bool finished);

// kSummaryWidth, or the width of a narrower terminal.
size_t summary_width();

}  // namespace kv::cli
