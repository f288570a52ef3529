#include "variants/cache/hadamard_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/hadamard.h"
#include "variants/core/scratch.h"

namespace kv {
namespace {

int64_t tokens_of(std::span<const StepInput> inputs) {
  return std::accumulate(inputs.begin(), inputs.end(), int64_t{0},
                         [](int64_t n, const StepInput& in) { return n + in.n; });
}

}  // namespace

float* HadamardRows::room(int64_t rows) {
  const auto bytes = static_cast<size_t>(rows * shape_.head_dim) * sizeof(float);
  return reinterpret_cast<float*>(fit(memory_, copies_, bytes));
}

// Null stays null: queries whose outputs are not wanted.
const float* HadamardRows::transform(Rotation rotation, const float* from, int64_t rows, float*& to) const {
  if (!from || rotation == Rotation::kNone) return from;
  if (rotation == Rotation::kRandom) {
    std::copy_n(from, rows * shape_.head_dim, to);
    flip_signs(to, rows, shape_.head_dim);
    from = to;
  }
  hadamard_rows(from, rows, shape_.head_dim, to);
  return std::exchange(to, to + rows * shape_.head_dim);
}

std::span<const StepInput> HadamardRows::rows(std::span<const StepInput> inputs) {
  float* to = room(2 * shape_.kv_heads * tokens_of(inputs));
  inputs_.assign(inputs.begin(), inputs.end());
  for (StepInput& in : inputs_) {
    in.k = transform(k_, in.k, shape_.kv_heads * in.n, to);
    in.v = transform(v_, in.v, shape_.kv_heads * in.n, to);
  }
  return inputs_;
}

std::vector<const float*> HadamardRows::queries(std::span<const StepInput> inputs) {
  float* to = room(shape_.q_heads * tokens_of(inputs));
  std::vector<const float*> queries;
  for (const StepInput& in : inputs) queries.push_back(transform(k_, in.q, shape_.q_heads * in.n, to));
  return queries;
}

void HadamardRows::restore(std::span<const StepInput> inputs) const {
  for (const StepInput& in : inputs) {
    if (!in.out || v_ == Rotation::kNone) continue;
    hadamard_rows(in.out, shape_.q_heads * in.n, shape_.head_dim, in.out);
    if (v_ == Rotation::kRandom) flip_signs(in.out, shape_.q_heads * in.n, shape_.head_dim);
  }
}

}  // namespace kv
