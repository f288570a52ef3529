// `kvlab compare`: two runs of the same cells, before and after a change.
#pragma once

#include <filesystem>
#include <string>

namespace CLI {
class App;
}

namespace kv::cli {

struct CompareOptions {
  std::string before, after;  // results folders
  // Limits separated by commas: slower:1.05 (the whole interval of a time ratio lies above it), error:0.01 and bytes:0
  // (relative growth). A limit without a number has these values. Empty: nothing fails.
  std::string fail_if;
  bool allow_missing = false;  // cells of the first run that the second lacks are no failure
  bool json = false;
};

void add_options(CLI::App& app, CompareOptions& options);

// Prints the cells that differ, or with `json` all of them. Returns kCellFailed if a limit is passed, or if a limit is given and a
// cell that was measured before is not any more or, without `allow_missing`, not there. Throws std::invalid_argument for folders that cannot be read or have no cell in
// common.
int compare(const CompareOptions& options);

// Prints what differs from the last finished run of the same config beside `folder`; nothing if there is none.
void compare_with_last(const std::filesystem::path& folder);

}  // namespace kv::cli
