// A model with a cache goes on from prompts, token by token: greedily, or drawn with a seed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "harness/model/decoder.h"

namespace kv::model {

// How the next token is chosen. Draws depend on (seed, sequence, position) alone, so that two caches whose
// predictions agree choose alike.
struct Sampling {
  double temperature = 0;  // 0: the likeliest token
  uint64_t seed = 1;
  // Texts of each prompt. The prompt is read once; sample i goes on as a text of its own would with seed + i.
  int samples = 1;
};
int next_token(std::span<const float> logits, const Sampling& sampling, int sequence, int64_t position);

// `prompts` [sequences, n], n >= 1, become the first step of a Decoder without tokens. Returns
// [sequences, samples, length] ids, prompts included. Stops early, with fewer ids, where `stop` says so.
std::vector<int> continue_prompts(Decoder& model, std::span<const int> prompts, int64_t length,
                                  const Sampling& sampling, const std::function<bool()>& stop);

}  // namespace kv::model
