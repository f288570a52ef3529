// Text as a model reads it: token ids, from a file of ids or through a tokenizer.
#pragma once

#include <string>
#include <vector>

namespace kv::model {

// Throws std::invalid_argument: one line with what is wrong, where, and what would be right; also for an id
// that is not in the vocabulary.
std::vector<int> read_token_file(const std::string& path, int vocab_size);

// The path of the tokenizer for a model's text: the one given, else tokenizer.json in the model's folder, else empty.
std::string tokenizer_for(const std::string& model_path, const std::string& given);

// The ids of a token file, or those that a tokenizer.json makes of a text. Throws std::invalid_argument also if it does not know more
// than a tenth of the text.
std::vector<int> read_tokens(const std::string& text_path, const std::string& tokenizer_path, int vocab_size);

}  // namespace kv::model
