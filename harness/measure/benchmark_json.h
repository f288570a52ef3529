// Writes samples in Google Benchmark's format, for its compare.py.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "harness/results/row.h"

namespace kv::measure {

// `steps`: rows of tables that have kStepUs. One entry a cell, kind and repetition; its time is the median of the
// repetition's steps. compare.py's U test expects that.
std::string benchmark_json(std::span<const results::Row> steps, const nlohmann::json& environment);

// The repetitions' times in such a file, in order, by name.
using RepetitionTimes = std::map<std::string, std::vector<double>>;
RepetitionTimes repetition_times(const nlohmann::json& benchmark);

}  // namespace kv::measure
