// Writes samples in Google Benchmark's format, for its compare.py.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/results/row.h"

namespace kv::measure {

// The meaning of an entry's real_time, which the file states; and what the name of an entry for the sum has at its end.
inline constexpr std::string_view kRealTime =
    "median of the repetition's steps; append_total: sum of their append + view";
inline constexpr std::string_view kAppendTotal = " append_total";

// `steps`: rows of tables that have kStepUs. One entry a cell, kind and repetition; its time is the median of the
// repetition's steps, which compare.py's U test expects. A growth run, whose steps have no kind, has their sum besides.
std::string benchmark_json(std::span<const results::Row> steps, const nlohmann::json& environment);

// The repetitions' times in such a file, in order, by name.
using RepetitionTimes = std::map<std::string, std::vector<double>>;
RepetitionTimes repetition_times(const nlohmann::json& benchmark);

}  // namespace kv::measure
