// Scripts that complete commands, options and values in a shell, generated from the command line's own table.
#pragma once

#include <CLI/App.hpp>
#include <string>

namespace kv::cli {

// `shell`: bash, zsh or fish.
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace kv::cli
