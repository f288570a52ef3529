// What one layer of a model keeps, as far as a cache has to know.
#pragma once

#include <cstdint>
#include <string>

namespace kv {

struct ModelLayer {
  std::string kind = "full";  // as the model's config names it, without "_attention": "full", "sliding", …
  int64_t window = 0;         // tokens that a query sees, its own included; 0: all before it
  int shares = -1;            // index of the earlier layer whose cache it reads; -1: it has its own
};

}  // namespace kv
