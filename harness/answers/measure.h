// The quantities by which cells are ranked, and how far each one of a cell reaches.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "harness/experiments/cell_text.h"

namespace kv::answers {

using experiments::Cells;
using results::Row;

// Served: shown and not ranked.
enum class Kind { kTime, kRate, kError, kBytes, kServed };
inline constexpr std::array kKinds{Kind::kTime, Kind::kRate, Kind::kError, Kind::kBytes};

// Values of `column` of cells.csv, with the interval that the column's declaration has.
struct Measure {
  Kind kind;
  std::string_view column;
  std::string_view is_best;      // the verb of a sentence about the best
  std::string (*write)(double);  // with a unit, unless `unit` has it
  std::string_view unit = {};
  std::string_view ratio = {};  // the column of its ratio to the baseline's
};
// Those of a kind, the most telling first.
std::span<const Measure> measures();
// The first measure of this kind that at least so many of the rows have; null if there is none.
const Measure* measure_of(Kind kind, const Cells& rows, size_t at_least = 2);

// A value with the ends of its interval; less is better.
struct Reach {
  double value, low, high;
  bool is_exact() const { return low == high; }
};
// A row's value; empty where none was measured, and for the error of a cache that was not put to the test. Bytes a token are none of a prompt's, whose caches all hold the same; workspace is a
// sequence's, and of prompts alone.
std::optional<Reach> own(const Row& row, const Measure& measure);
// A row's time over the baseline's.
std::optional<Reach> pace(const Row& row, const Measure& measure);
// The verdict on the pace; without one the row's own, which is on losses.
std::string told(const Row& row, const Measure* measure);

std::string times_text(double ratio);
std::string span_text(const Reach& reach);  // "0.57–0.63"

}  // namespace kv::answers
