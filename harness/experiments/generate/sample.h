// The generate experiment: a model goes on from prompts with each variant, and the first token at which its
// text leaves the full f32 cache's is found. And `kvlab sample`, which prints what the full cache writes.
//
// The prompts are the beginnings of `batch` disjoint windows of the text; both texts draw the same random
// numbers, so they part only where the cache has changed a choice.
#pragma once

#include <cstdint>
#include <string>

namespace kv::experiments {

struct SampleOptions {
  std::string model, tokenizer;
  std::string prompt;  // text that every document begins with
  int documents = 1;
  int64_t tokens = 256;  // of each document, its prompt included
  double temperature = 1.0;
  uint64_t seed = 1;
};
// Documents that the model writes, each followed by a line `<|endoftext|>`. Throws
// std::invalid_argument.
std::string sample_documents(const SampleOptions& options);

}  // namespace kv::experiments
