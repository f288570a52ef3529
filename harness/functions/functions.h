// Users' functions in Python, which score the tokens of a cache or encode its rows (variants/core/user_function.h). Each file's
// are called in a process of their own, which reads the rows where they lie in shared memory.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "variants/core/user_function.h"

namespace kv::functions {

// The file of "FILE:FUNCTION" or "FILE:ENCODE+DECODE". Throws std::invalid_argument with one line if there is none.
std::filesystem::path file_of(const std::string& function);

// Starts the function's process, or finds the one that runs. Throws std::invalid_argument where the file cannot be
// imported, or lacks the function.
std::shared_ptr<UserFunction> open(const std::string& function);

}  // namespace kv::functions
