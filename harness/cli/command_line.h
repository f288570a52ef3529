// The commands and their options.
#pragma once

namespace kv::cli {

// Returns the exit code: 0 done, 1 a cell failed its verification, 2 a mistake for the user to fix, 130 stopped.
int command_line(int argc, char** argv);

}  // namespace kv::cli
