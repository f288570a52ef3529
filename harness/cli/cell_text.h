// A cell's values as the tables on the terminal show them, and tables that fit it.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/experiments/experiment.h"

namespace kv::cli {

using Strings = std::vector<std::string>;
using experiments::Cells;
using experiments::format;
using experiments::grouped;
using experiments::number;
using experiments::percent;
using experiments::with_interval;

// The variant, and the arm, or that it is the A/A test.
std::string row_name(const results::Row& row);
// "decode, gaussian, batch 1, 512 tokens, 32/8 heads of 128, 2 threads".
std::string sweep_point_name(const results::Row& row);

// ", distance 100, passage of 64 tokens": the values of the axes that its experiment alone has.
std::string own_axes(const results::Row& row);

// At most `most` characters: of what is longer the middle is left out. Texts are ASCII.
std::string shortened(const std::string& text, size_t most);

// The table as aligned text of at most `width` characters. Where it would be wider, the names in its first
// `name_columns` columns get shorter, down to `shortest_name`; then columns go, the last but one first.
std::string fitted(std::vector<Strings> table, size_t width, size_t name_columns = 1,
                   size_t shortest_name = 32);

// One sentence in lines of at most `width` characters; all but the first are indented.
std::string wrapped(const std::string& sentence, size_t width);

}  // namespace kv::cli
