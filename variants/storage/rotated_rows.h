// positions=cache: keys are stored before RoPE, and rotated by their cache positions when they are read; the query is rotated by its own position after them (StreamingLLM, Xiao et al. 2024,
// arXiv:2309.17453, section 3.2). The cache position of a key is the number of older tokens that are kept, so
// no query ever looks farther back than the cache is long, however much has passed through it.
//
// Cache positions change with every eviction, so all keys are rotated anew at every read, into an f32 copy:
// workspace that the ledger counts. Values are read where they lie. A GPU rotates keys itself
// (kernels/cuda/attention/read_back.h), and copies the values as well.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/span.h"
#include "variants/core/memory.h"
#include "variants/core/retention.h"
#include "variants/core/rope.h"

namespace kv {

class RotatedRows {
 public:
  RotatedRows(const Rope& rope, int head_dim, Memory& memory)
      : rope_(rope), head_dim_(head_dim), memory_(memory) {}

  // Makes each view, the rows of one kv head in slot order, show rotated copies of its keys. heads[i] knows
  // the tokens of view i. The views are valid until the next call.
  void rotate_keys(std::span<std::span<const Span>> views, std::span<const Retention* const> heads);
  // For keys that are rotated elsewhere: the cache positions of a head's slots, and the cosines and sines of at
  // least `positions` positions, [positions, 2, head_dim / 2].
  static std::vector<int32_t> positions(const Retention& head);
  std::span<const float> angles_of(int64_t positions);
  bool half_split() const { return rope_.pairs == RopePairs::kHalfSplit; }

  // One step's queries of a sequence: q [heads, n, head_dim], of its newest n tokens.
  struct Queries {
    const float* q;
    int64_t n, first_position;
  };
  // The same rows rotated, of each of `queries`; valid until the next call. Positions must have been among
  // those of the last rotate_keys() or angles_of().
  std::vector<const float*> rotate_queries(std::span<const Queries> queries, int heads);

 private:
  void rotate_view(std::span<const Span> view, const Retention& head, float* to) const;
  const float* angles(int64_t position) const {
    return reinterpret_cast<const float*>(angles_.data()) + position * head_dim_;
  }
  void fit_angles(int64_t positions);

  Rope rope_;
  int head_dim_;
  Memory& memory_;
  Block keys_, queries_, angles_;  // angles_: [positions, 2, head_dim / 2]
  int64_t positions_ = 0;          // that angles_ holds
  std::vector<Span> spans_;        // targets of rotated views
};

}  // namespace kv
