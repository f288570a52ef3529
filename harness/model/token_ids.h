// Text as a model reads it: token ids, from a file of ids or through a llama2.c tokenizer.
#pragma once

#include <string>
#include <vector>

namespace kv::model {

// Throws std::invalid_argument: one line with what is wrong, where, and what would be right; also for an id
// that is not in the vocabulary.
std::vector<int> read_token_file(const std::string& path, int vocab_size);

// The ids of a token file, or those that the tokenizer makes of a text, whose documents may stand between
// lines
// `<|endoftext|>`. Throws std::invalid_argument also if the tokenizer does not know more than a tenth of the
// text.
std::vector<int> read_tokens(const std::string& text_path, const std::string& tokenizer_path, int vocab_size);

}  // namespace kv::model
