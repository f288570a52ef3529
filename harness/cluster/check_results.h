// Checks that a results folder is consistent, for `kvlab check-results`: others' results are shown only after it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace kv::cluster {

struct Check {
  size_t cells = 0, sums = 0, closed_forms = 0, medians = 0, ratios = 0, shares = 0,
         verdicts = 0;                // counts of what was read or computed again
  std::vector<std::string> findings;  // violations
  std::vector<std::string> notes;     // checks that could not be made, with the reason
};

// Reads schema and values, the config's hash, the sweep that it plans, bytes by the closed form, and medians, their
// intervals and ratios from the repetitions' medians of benchmark.json. A folder of which nothing can be computed again has a
// finding that says so. Throws std::invalid_argument for a folder that cannot be read.
Check check_results(const std::filesystem::path& folder);

}  // namespace kv::cluster
