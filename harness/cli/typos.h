// Mistakes on the command line, each with the probable correction.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <string>
#include <vector>

namespace kv::cli {

// Accepts one of these values.
CLI::Validator one_of(std::vector<std::string> values);
// Accepts a number of tokens, 131072 or 128K, and converts it to digits.
CLI::Validator token_count();

// Throws CLI::ParseError if the first argument names no command.
void refuse_unknown_command(const CLI::App& app, int argc, const char* const* argv);
// The mistake in one line, in CLI11's words except for arguments that the command does not have.
std::string mistake_in(const CLI::App& app, const CLI::Error& error);

}  // namespace kv::cli
