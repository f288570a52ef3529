// A cell's values as the terminal shows them: texts of values, the columns of a sweep point's table, and what "exact" is
// measured by. Experiments choose among these, or add their own.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/results/row.h"

namespace kv::experiments {

std::string format(const char* pattern, double value);
// "-" where there is none.
std::string number(const results::Number& value, const char* pattern);
std::string number(const results::Integer& value, const char* pattern);
std::string percent(const std::optional<double>& share);
// "12.3 (11.9–12.8)"; without the interval where there were too few repetitions for one.
std::string with_interval(const results::Number& value, const results::Number& low,
                          const results::Number& high, const char* pattern);
using Cells = std::vector<const results::Row*>;
// Cells in their order, in groups of one name.
std::vector<std::pair<std::string, Cells>> grouped(std::span<const results::Row* const> cells,
                                                   std::string (*name_of)(const results::Row&));

// The time against the baseline's, and the verdict.
std::string verdict_text(const results::Row& row);

// A column of a sweep point's table, beside the variant's name.
struct TableColumn {
  std::string_view head;
  std::string (*text)(const results::Row& row);
};

extern const TableColumn kHeldText, kStepText, kErrorText, kRatioText, kTokenBytesText, kPerplexityText,
    kLossChangeText, kRateText, kVerdictText;
// Of steps of a cache alone.
extern const std::array<TableColumn, 6> kStepTable;
// Of what a model predicts.
extern const std::array<TableColumn, 6> kReadingTable;

// A value that is compared, the smaller the better, with the bounds of its interval or the value itself.
struct Measured {
  results::Number value, low, high;
};
Measured exactly(const results::Number& value);
Measured within(const results::Number& value, const results::Number& low, const results::Number& high);

// How exact a cell is.
struct ErrorMeasure {
  Measured (*measured)(const results::Row& row);
  std::string (*in_short)(const results::Row& row);
  std::string (*text)(const results::Row& row);
};
extern const ErrorMeasure kOutputError, kDivergenceError, kLossError;

}  // namespace kv::experiments
