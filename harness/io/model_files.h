// Models and texts that Python reads for kvlab, once each (harness/model/model_files.py). All throw std::invalid_argument with one
// line: what is wrong with which file, or that Python is missing. After make_nothing() they throw NotHere instead of downloading,
// converting or writing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace kv::io {

// The message says what would be downloaded or made first.
struct NotHere : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};
// For the rest of the process.
void make_nothing();

bool is_gguf(const std::string& path);

// The place of a file or folder; or a name of harness/model/model_packages.json, as it is.
std::filesystem::path find_model(const std::string& path);

// A model as kvlab reads it: a Hugging Face folder as it is, the folder made of a GGUF file, or of that of a package,
// which is downloaded if it is not here.
std::filesystem::path model_to_read(const std::string& path);

// The config.json of a GGUF file, whose weights are not read.
std::filesystem::path config_of_gguf(const std::string& path);

// The place of a text file; of none, Python's own documentation (pydoc_data.topics).
std::filesystem::path text_to_read(const std::string& text);

// The token ids (.npy) of a text by a tokenizer.json.
std::filesystem::path tokens_of_text(const std::string& tokenizer, const std::string& text);

// The ids of a text that is no file's.
std::vector<int> ids_of_text(const std::string& tokenizer, const std::string& text);

// Texts of `length` ids each, [texts, length]: what the first `prompt` ids say, and what the others say behind them. In UTF-8, without
// control characters other than tabs and line ends.
struct TextOfTokens {
  std::string prompt, rest;
};
std::vector<TextOfTokens> texts_of_tokens(const std::string& tokenizer, std::span<const int> ids,
                                          int64_t length, int64_t prompt);

}  // namespace kv::io
