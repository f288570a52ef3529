// Mistakes on the command line, each with what was probably meant.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <string>
#include <vector>

namespace kv::cli {

// A value that is one of these.
CLI::Validator one_of(std::vector<std::string> values);
// A number of tokens, as 131072 or 128K, which becomes digits.
CLI::Validator token_count();

// Throws CLI::ParseError if the first argument names no command.
void refuse_unknown_command(const CLI::App& app, int argc, const char* const* argv);
// What is wrong, in one line: CLI11's words, but for arguments that the command does not have.
std::string mistake_in(const CLI::App& app, const CLI::Error& error);

}  // namespace kv::cli
