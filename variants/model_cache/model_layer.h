// The facts about one layer of a model that a cache needs, from the model's config.
#pragma once

#include <cstdint>
#include <string>

namespace kv {

// `kind`: "full" (every query sees all tokens), "sliding" (the last `window` of them, the query's own included), "chunked"
// (those of its chunk of `window` tokens, which a ring of them holds), "linear" (a state of constant size in place of rows,
// linear_cache.h), or another, which keeps nothing that grows and has no cache here. `shares`: the earlier layer whose cache
// this one reads in place of one of its own, or -1.
struct ModelLayer {
  std::string kind = "full";
  int64_t window = 0;
  int shares = -1;
};

}  // namespace kv
