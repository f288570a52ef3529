// Text of a cell's values for the terminal's tables, and tables that fit the terminal.
#pragma once

#include <string>
#include <vector>

#include "harness/experiments/experiment.h"
#include "harness/io/text_table.h"

namespace kv::cli {

using Strings = std::vector<std::string>;
using experiments::Cells;
using experiments::format;
using experiments::grouped;
using experiments::number;
using experiments::percent;
using experiments::row_name;
using experiments::with_interval;
using io::wrapped;

// "512 tokens"; where requests are served, how many, and the medians of their prompts and answers.
std::string length_text(const results::Row& row);
// "decode, gaussian, batch 1, 512 tokens, 32/8 heads of 128, 2 threads".
std::string sweep_point_name(const results::Row& row);

std::string heads_of(const results::Row& row);    // "32/8 heads of 128"
std::string threads_of(const results::Row& row);  // "2 threads"

// ", distance 100, passage of 64 tokens": the values of its experiment's own axes; with `among` those that differ there.
std::string own_axes(const results::Row& row, const Cells& among = {});

// Aligns the table within `width` characters. A wider table shortens the names in its first `name_columns` columns,
// down to `shortest_name`, and then drops columns, the last but one first.
std::string fitted(std::vector<Strings> table, size_t width, size_t name_columns = 1,
                   size_t shortest_name = 32);

// "40 s", "6.5 min" or "2.1 h".
std::string duration(double seconds);

}  // namespace kv::cli
