// What a run prints at its end: the answer first, then as many tables as fit.
#pragma once

#include <span>
#include <string>

#include "harness/results/cell_columns.h"

namespace kv::cli {

inline constexpr size_t kSummaryWidth = 120, kSummaryLines = 36;

struct SummaryOptions {
  bool full = false;  // every sweep point's table, however many lines they take
  size_t width = kSummaryWidth;
  std::string more = {};  // the command that shows all tables
};

// At most kSummaryLines lines of at most `width` characters: the fastest, smallest and most exact variant at the
// longest length of each experiment, then a table a sweep point, or, where these have no room, a table an
// experiment. What has no room is in the report, in cells.csv and in the full tables.
std::string summary(std::span<const results::Row> cells, const SummaryOptions& options = {});

// kSummaryWidth, or as wide as a narrower terminal is.
size_t summary_width();

}  // namespace kv::cli
