// Samples as Google Benchmark writes them, for its compare.py.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "harness/results/side_results.h"

namespace kv::results {

// One entry a cell, kind and repetition, whose time is the median of its steps: what compare.py's U test
// expects.
std::string benchmark_json(std::span<const SampleResult> samples, std::span<const GrowthResult> growth,
                           const nlohmann::json& environment);

}  // namespace kv::results
