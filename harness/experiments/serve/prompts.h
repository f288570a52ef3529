// Requests with real tokens: a trace says how long prompts are and what they have in common, a text gives the tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "harness/planner/trace_facts.h"

namespace kv::experiments {

struct ServedRequest {
  io::Request request;      // lengths and arrival as they are served
  std::vector<int> prompt;  // token ids
};

// How a trace's lengths and its rate are fitted to this machine.
struct RequestScale {
  double lengths = 1.0;  // tokens here / tokens there; a prompt and an answer keep a token
  double rate = 1.0;     // requests a second here / there
};

// All requests. A block with an id has the tokens of a stretch of `text` that the id and the block's place choose, so prompts
// that begin with the same ids begin alike; a prompt without ids is one stretch. `text` is not empty.
std::vector<ServedRequest> with_prompts(planner::RequestSource source, const RequestScale& scale,
                                        std::span<const int> text, uint64_t seed);

// The same requests, whose blocks of `unit` tokens have an id by their content: equal blocks have the same.
std::vector<io::Request> by_content(std::span<const ServedRequest> requests, int64_t unit);

}  // namespace kv::experiments
