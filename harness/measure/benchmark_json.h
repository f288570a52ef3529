// Writes samples in Google Benchmark's format, for its compare.py.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "harness/results/row.h"

namespace kv::measure {

// `steps`: rows of tables that have kStepUs. One entry a cell, kind and repetition; its time is the median of the
// repetition's steps. compare.py's U test expects that.
std::string benchmark_json(std::span<const results::Row> steps, const nlohmann::json& environment);

}  // namespace kv::measure
