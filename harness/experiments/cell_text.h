// A cell's values on the terminal: texts of values, the columns of a sweep point's table, and the measure of
// exactness. Experiments choose among these or add their own.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/measure/time_columns.h"
#include "harness/results/row.h"

namespace kv::experiments {

std::string format(const char* pattern, double value);
// A number of tokens, rounded to so many digits.
std::string rounded_tokens(double tokens, int digits);
// "-" for an absent value.
std::string number(const results::Number& value, const char* pattern);
std::string number(const results::Integer& value, const char* pattern);
std::string percent(const std::optional<double>& share);
// "1 of 32 layers" and `end` where a part of the model's layers was measured, else empty.
std::string layers_text(const results::Row& row, const char* end);
// "12.3 (11.9–12.8)"; no interval if there were too few repetitions.
std::string with_interval(const results::Number& value, const results::Number& low,
                          const results::Number& high, const char* pattern);
std::string with_interval(const results::Row& row, const results::Estimate& of, const char* pattern,
                          double factor = 1);
// "paged q8_0, batching 128": the cell's label with its arm.
std::string called(const results::Row& row);
// The same, marked as the A/A test, an oracle, …
std::string row_name(const results::Row& row);
// The machine, and the values of all axes that are no part of a row's name: equal for the cells of a sweep point.
std::string axes_key(const results::Row& row);
// The same without the length.
std::string axes_key_of_any_length(const results::Row& row);
using Cells = std::vector<const results::Row*>;
// Groups cells by name and keeps their order.
std::vector<std::pair<std::string, Cells>> grouped(std::span<const results::Row* const> cells,
                                                   std::string (*name_of)(const results::Row&));

// A time relative to the baseline's with its interval, and the verdict on it.
std::string verdict_text(const results::Row& row, const results::Estimate& ratio = measure::kRatioP50,
                         const char* pattern = "%.2f");

// A number, or an estimate with its interval, as the text of a table's column.
template <const auto& kColumn, results::Literal kPattern>
std::string shown(const results::Row& row) {
  return number(row[kColumn], kPattern.text);
}
template <const results::Estimate& kEstimate, results::Literal kPattern>
std::string estimated(const results::Row& row) {
  return with_interval(row, kEstimate, kPattern.text);
}

// A column of a sweep point's table, beside the variant's name; `head` is the heading of a column of cells.csv where it shows one.
struct TableColumn {
  std::string_view head;
  std::string (*text)(const results::Row& row);
  std::string_view unit = {};  // behind the head
};

extern const TableColumn kHeldText, kStepText, kErrorText, kRatioText, kTokenBytesText, kPerplexityText,
    kLossChangeText, kRateText, kVerdictText;
// For steps of a cache alone.
extern const std::array<TableColumn, 6> kStepTable;
// For a model's predictions.
extern const std::array<TableColumn, 6> kReadingTable;

// A compared value, the smaller the better, with its interval's bounds or the value itself.
struct Measured {
  results::Number value, low, high;
};
Measured exactly(const results::Number& value);
Measured within(const results::Row& row, const results::Estimate& of);

// The measure of a cell's exactness.
struct ErrorMeasure {
  Measured (*measured)(const results::Row& row);
  std::string (*in_short)(const results::Row& row);
  std::string (*text)(const results::Row& row);
  // The fastest and the smallest are named among cells with at most this error.
  double limit;
  std::string_view limit_text, said;  // in a table, and in a sentence as "with an error of at most 0.2"
  std::string_view column = {};       // of cells.csv, where it has the measure
};
extern const ErrorMeasure kOutputError, kDivergenceError, kLossError;

}  // namespace kv::experiments
