// `kvlab sample`: documents that a model writes with the full f32 cache.
#pragma once

#include <cstdint>
#include <string>

namespace kv::experiments {

struct SampleOptions {
  std::string model, tokenizer;
  std::string prompt;  // the beginning of every document
  int documents = 1;
  int64_t tokens = 256;  // each document's, prompt included
  double temperature = 1.0;
  uint64_t seed = 1;
};
// Documents that the model writes, each followed by a line `<|endoftext|>`. Throws std::invalid_argument.
std::string sample_documents(const SampleOptions& options);

}  // namespace kv::experiments
