// A model's logits for a text, in a file: for holding kvlab's forward pass against another program's.
#pragma once

#include <string>

namespace kv::model {

struct LogitsOptions {
  std::string model, tokenizer, text, out;  // the tokenizer is not needed where text is token ids
};

// Runs the whole text with full attention and writes `logits` [tokens, vocab_size], f32, as safetensors.
// Throws std::invalid_argument for what a model cannot read, and std::runtime_error if the file cannot be
// written.
void write_logits(const LogitsOptions& options);

}  // namespace kv::model
