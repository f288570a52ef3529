// positions=cache: keys lie in the cache as they were before RoPE, and are turned by their places when they
// are read; the query is turned by its own place after them (StreamingLLM, Xiao et al. 2024,
// arXiv:2309.17453, section 3.2). The place of a key is the number of older tokens that are kept, so no query
// ever looks farther back than the cache is long, however much has passed through it.
//
// Places change with every eviction, so all keys are turned anew at every read, into an f32 copy: workspace
// that the ledger counts. Values are read where they lie. A GPU turns them itself (kernels/cuda/copy.h), and
// copies the values as well.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/span.h"
#include "variants/memory.h"
#include "variants/retention/retention.h"
#include "variants/rope.h"

namespace kv {

class TurnedRows {
 public:
  TurnedRows(const Rope& rope, int head_dim, Memory& memory)
      : rope_(rope), head_dim_(head_dim), memory_(memory) {}

  // Makes each view, the rows of one kv head in slot order, show turned copies of its keys. heads[i] knows
  // the tokens of view i. What the views then show is valid until the next call.
  void turn_keys(std::span<std::span<const Span>> views, std::span<const Retention* const> heads);
  // For who turns the keys elsewhere: the places of a head's slots, and the cosines and sines of at least
  // `places` places, [places, 2, head_dim / 2].
  static std::vector<int32_t> places(const Retention& head);
  std::span<const float> angles_of(int64_t places);
  bool halves() const { return rope_.pairs == RopePairs::kHalves; }

  // One step's queries of a sequence: q [heads, n, head_dim], of its newest n tokens.
  struct Queries {
    const float* q;
    int64_t n, first_place;
  };
  // The same rows turned, of each of `queries`; valid until the next call. Places must have been among those
  // of the last turn_keys().
  std::vector<const float*> turn_queries(std::span<const Queries> queries, int heads);

 private:
  void turn_view(std::span<const Span> view, const Retention& head, float* to) const;
  const float* angles(int64_t place) const {
    return reinterpret_cast<const float*>(angles_.data()) + place * head_dim_;
  }
  void fit_angles(int64_t places);

  Rope rope_;
  int head_dim_;
  Memory& memory_;
  Block keys_, queries_, angles_;  // angles_: [places, 2, head_dim / 2]
  int64_t places_ = 0;             // that angles_ holds
  std::vector<Span> spans_;        // what turned views point into
};

}  // namespace kv
