#include "harness/model/weights.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "harness/model/products.h"
#include "harness/model/step_parts.h"
#include "kernels/cpu/encode/convert.h"

namespace kv::model {
namespace {

// A block of rows is converted, multiplied and forgotten while it is in the second-level cache.
constexpr int64_t kBlockElements = 1 << 17;
// Below this many multiply-adds threads cost more than they save.
constexpr int64_t kParallelWork = 1 << 19;
// Up to so many tokens, 16-bit weights are faster widened in registers than in memory for a library (kernels/LOG.md).
constexpr int64_t kFewTokens = 8;

}  // namespace

bool WeightMatrix::is_mappable() const {
  return type_ == Type::kF32 && std::bit_cast<uintptr_t>(data_) % alignof(float) == 0;
}

void WeightMatrix::read(int64_t first, int64_t n, float* to) const {
  const std::byte* from = data_ + first * row_bytes();
  const int64_t count = n * cols_;
  if (type_ == Type::kF32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  } else if (type_ == Type::kF16) {
    cpu::convert_f16_to_f32(from, to, count);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      uint16_t upper;  // copied, since nothing aligns the data of a file
      std::memcpy(&upper, from + 2 * i, sizeof upper);
      to[i] = std::bit_cast<float>(static_cast<uint32_t>(upper) << 16);
    }
  }
}

Matrix WeightMatrix::apply(const Matrix& x) const {
  const StepParts::Timing timing(Part::kProjections);
  StepParts::count_product(bytes(), x.rows() * rows_ * cols_);
  Matrix y(x.rows(), rows_);
  const int64_t block = std::max<int64_t>(1, kBlockElements / cols_), blocks = (rows_ + block - 1) / block;
#pragma omp parallel for schedule(dynamic, 1) if (x.rows() * rows_ * cols_ > kParallelWork)
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t first = b * block;
    part(first, std::min(block, rows_ - first)).apply_block(x, y.data() + first, rows_);
  }
  return y;
}

void WeightMatrix::apply_block(const Matrix& x, float* y, int64_t y_stride) const {
  if (is_mappable())
    return multiply(x.data(), x.rows(), reinterpret_cast<const float*>(data_), rows_, cols_, y, y_stride);
  if (x.rows() <= kFewTokens)
    return cpu::multiply_weights(data_, type_, rows_, cols_, x.data(), x.rows(), y, y_stride);
  Matrix converted(rows_, cols_);
  read(0, rows_, converted.data());
  multiply(x.data(), x.rows(), converted.data(), rows_, cols_, y, y_stride);
}

std::vector<const WeightMatrix*> ModelWeights::products() const {
  std::vector<const WeightMatrix*> all;
  for (const LayerWeights& l : layers) {
    for (const WeightMatrix* m :
         {&l.wq, &l.wk, &l.wv, &l.wo, &l.recurrent_in, &l.recurrent_out, &l.gate, &l.up, &l.down})
      if (m->rows() > 0) all.push_back(m);
  }
  all.push_back(&classifier);
  return all;
}

void check_fits(const std::string& path, int64_t weight_bytes, int64_t memory_bytes) {
  if (weight_bytes <= memory_bytes) return;
  throw std::invalid_argument("model " + path + ": its weights take " + std::to_string(weight_bytes) +
                              " bytes of memory, " + std::to_string(memory_bytes) +
                              " are available; a smaller model, or one in 16 bits, is needed");
}

}  // namespace kv::model
