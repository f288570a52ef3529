// `kvlab list`, from the registry, the config folder, the families and the metrics table.
#pragma once

#include <string>

namespace kv::cli {

// `json`: the same as JSON (fields: results/json.md). `only_variants`: the entries of each stage alone.
std::string listing(bool json, bool only_variants = false);

// `kvlab list columns`: name, unit and meaning of every column of a results folder, from its declaration.
std::string columns_listing(bool json);

// The pairs of variants that work together, as Markdown: the text of variants/pairs.md.
std::string pairs_page();

}  // namespace kv::cli
