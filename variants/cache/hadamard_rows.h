// rotate=hadamard and turbo: rows lie in the cache as the Hadamard transform makes them, which spreads a large channel over all
// (kernels/hadamard.h). The transform keeps dot products, so scores need queries that are transformed likewise, and the
// output, a sum of transformed values, is transformed back: both once a step, whatever the length. A codec with random
// signs has them changed before, and back after. All that lies between,
// from the codec's residual rows to a tier's file, knows nothing of it.
#pragma once

#include <span>
#include <vector>

#include "variants/cache/cache.h"
#include "variants/core/codec.h"
#include "variants/core/memory.h"

namespace kv {

class HadamardRows {
 public:
  // `memory` outlives this and counts the copies as workspace.
  HadamardRows(const CacheShape& shape, const Codec& codec, Memory& memory)
      : shape_(shape), k_(codec.k_rotation), v_(codec.v_rotation), memory_(memory) {}

  // The inputs with those of K and V transformed that the codec rotates; valid until the next call of any function.
  std::span<const StepInput> rows(std::span<const StepInput> inputs);
  // Queries of each input, [q_heads, n, head_dim], transformed if K is; valid likewise.
  std::vector<const float*> queries(std::span<const StepInput> inputs);
  // Transforms what attention has written to the inputs' outputs back, if V is transformed.
  void restore(std::span<const StepInput> inputs) const;

 private:
  const float* transform(Rotation rotation, const float* from, int64_t rows, float*& to) const;
  float* room(int64_t rows);

  const CacheShape shape_;
  const Rotation k_, v_;
  Memory& memory_;
  Block copies_;
  std::vector<StepInput> inputs_;
};

}  // namespace kv
