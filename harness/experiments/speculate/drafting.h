// Speculative decoding of one text (Leviathan et al. 2023, arXiv:2211.17192, greedy): the model proposes tokens with a draft
// cache, verifies them with a target cache in one step, and both caches forget what was refused.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/model/ragged_model.h"

namespace kv::experiments {

using model::TextReader;

// A text without drafts.
struct PlainText {
  std::vector<int> ids;                    // after the prompt
  std::vector<std::vector<float>> logits;  // that chose each
  double seconds = 0.0;                    // after the prompt
};
PlainText continue_plainly(TextReader& target, std::span<const int> prompt, int64_t tokens);

struct DraftedText {
  std::vector<int> ids;        // after the prompt
  int64_t steps = 0;           // of the target
  std::vector<double> shares;  // accepted / proposed of each step that verified
  double seconds = 0.0;        // after the prompt, both caches
  bool rounded = false;        // it leaves the plain text at a token whose margin is within rounding
  std::string failure;         // where it leaves the plain text otherwise; empty: nowhere
};
// Proposes `draft_tokens` tokens a step. The text must be the plain one: greedy choices of the same model with the same
// target cache. Sums of a step of several tokens round otherwise than those of one, so that it may leave the plain text where
// two tokens are as likely but for rounding. Throws std::invalid_argument where a cache cannot forget.
DraftedText continue_with_drafts(TextReader& draft, TextReader& target, std::span<const int> prompt,
                                 int64_t draft_tokens, const PlainText& plain);

}  // namespace kv::experiments
