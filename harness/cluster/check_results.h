// Whether a results folder holds together: what `kvlab check-results` says before others' results are shown.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace kv::cluster {

struct Check {
  size_t cells = 0, closed_forms = 0, intervals = 0,
         ratios = 0;                  // how many were looked at, or computed again
  std::vector<std::string> findings;  // what does not hold
  std::vector<std::string> notes;     // what could not be checked, and why
};

// Reads schema and values, the config's hash, the sweep that it plans, bytes by the closed form, and intervals and ratios
// from the repetitions' medians of benchmark.json. Throws std::invalid_argument for a folder that cannot be read.
Check check_results(const std::filesystem::path& folder);

}  // namespace kv::cluster
