// A cell's values as the tables on the terminal show them, and tables that fit it.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/results/cell_result.h"

namespace kv::cli {

using Strings = std::vector<std::string>;
using Cells = std::vector<const results::CellResult*>;

std::string format(const char* pattern, double value);
// "-" where there is none.
std::string number(const results::Number& value, const char* pattern);
std::string number(const results::Integer& value, const char* pattern);
std::string percent(const std::optional<double>& share);

// "12.3 (11.9–12.8)"; without the interval where there were too few repetitions for one.
std::string with_interval(const results::Number& value, const results::Number& low,
                          const results::Number& high, const char* pattern);

// The variant, and the arm, or that it is the A/A test.
std::string row_name(const results::CellResult& row);
// "decode, gaussian, batch 1, 512 tokens, 32/8 heads of 128, 2 threads".
std::string sweep_point_name(const results::CellResult& row);

// Cells in their order, in groups of one name.
std::vector<std::pair<std::string, Cells>> grouped(std::span<const results::CellResult* const> cells,
                                                   std::string (*name_of)(const results::CellResult&));

// At most `most` characters: of what is longer the middle is left out. Texts are ASCII.
std::string shortened(const std::string& text, size_t most);

// The table as aligned text of at most `width` characters. Where it would be wider, the names in its first
// `name_columns` columns get shorter, down to `shortest_name`; then columns go, the last but one first.
std::string fitted(std::vector<Strings> table, size_t width, size_t name_columns = 1,
                   size_t shortest_name = 32);

// One sentence in lines of at most `width` characters; all but the first are indented.
std::string wrapped(const std::string& sentence, size_t width);

}  // namespace kv::cli
