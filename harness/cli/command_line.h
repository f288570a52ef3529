// The commands and their options.
#pragma once

namespace kv::cli {

// Returns the exit code: 0 done, 1 some cell failed its verification, 2 something for the user to set right,
// 130 stopped.
int command_line(int argc, char** argv);

}  // namespace kv::cli
