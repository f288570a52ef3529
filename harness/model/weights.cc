#include "harness/model/weights.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <stdexcept>

#include "harness/model/products.h"
#include "harness/model/step_parts.h"
#include "kernels/cpu/weights/expand.h"
#include "kernels/cpu/weights/multiply.h"
#include "kernels/cpu/weights/product.h"
#include "kernels/math.h"

namespace kv::model {
namespace {

// Below this many multiply-adds threads cost more than they save.
constexpr int64_t kParallelWork = 1 << 19;
// Rows that are expanded and multiplied while they are in a core's cache: a multiple of any tile's.
constexpr int64_t kPanelRows = 12;

std::vector<uint16_t> to_bf16(const Matrix& x) {
  std::vector<uint16_t> narrow(static_cast<size_t>(x.size()));
#pragma omp parallel for if (x.size() > kParallelWork / 8)
  for (int64_t i = 0; i < x.size(); ++i) narrow[static_cast<size_t>(i)] = f32_to_bf16(x.data()[i]);
  return narrow;
}

}  // namespace

// Up to so many tokens, 16-bit weights are faster widened in registers than in memory (kernels/LOG.md).
bool WeightMatrix::is_plain_read(int64_t tokens) const {
  return tokens <= 8 && (type_ == Type::kF16 || type_ == Type::kBf16);
}

void WeightMatrix::read(int64_t first, int64_t n, float* to) const {
  cpu::expand_weights(data_ + first * row_bytes(), type_, n * cols_, to);
}

WeightMatrix WeightMatrix::in_bf16() const {
  if (type_ != Type::kBf16) throw std::logic_error("in_bf16: the weights are of another type");
  WeightMatrix same = *this;
  same.in_bf16_ = true;
  return same;
}

Matrix WeightMatrix::apply(const Matrix& x) const {
  const WeightMatrix* const alone = this;
  return std::move(apply_all({&alone, 1}, x).front());
}

std::vector<Matrix> apply_all(std::span<const WeightMatrix* const> weights, const Matrix& x) {
  struct Block {
    const WeightMatrix* of;
    int64_t first;
    float* y;
  };
  const StepParts::Timing timing(Part::kProjections);
  std::vector<Matrix> outputs;
  std::vector<Block> blocks;
  int64_t work = 0;
  for (const WeightMatrix* w : weights) {
    StepParts::count_product(w->bytes(), x.rows() * w->rows() * w->cols());
    work += x.rows() * w->rows() * w->cols();
    Matrix& y = outputs.emplace_back(x.rows(), w->rows());
    for (int64_t first = 0; first < w->rows(); first += WeightMatrix::kBlockRows)
      blocks.push_back({w, first, y.data()});
  }
  WeightMatrix::Factor factor{.x = &x};
  std::vector<uint16_t> narrow;
  Matrix rounded;
  if (weights.front()->in_bf16_) {
    narrow = to_bf16(x);
    factor.narrow = narrow.data();
    if (weights.front()->is_plain_read(x.rows())) {
      rounded.resizeLike(x);
      std::transform(narrow.begin(), narrow.end(), rounded.data(), bf16_to_f32);
      factor = {.x = &rounded};
    }
  }
  std::unique_ptr<float[]> packed;
  const auto wants_packed = [&](const WeightMatrix* w) { return !w->is_plain_read(x.rows()); };
  if (!factor.narrow && std::any_of(weights.begin(), weights.end(), wants_packed)) {
    packed =
        std::make_unique_for_overwrite<float[]>(static_cast<size_t>(cpu::packed_size(x.rows(), x.cols())));
    cpu::pack_vectors(x.data(), x.rows(), x.cols(), packed.get());
    factor.packed = packed.get();
  }
#pragma omp parallel for schedule(dynamic, 1) if (work > kParallelWork)
  for (size_t b = 0; b < blocks.size(); ++b) blocks[b].of->apply_block(factor, blocks[b].first, blocks[b].y);
  return outputs;
}

void WeightMatrix::apply_block(const Factor& factor, int64_t first, float* y) const {
  const int64_t n = factor.x->rows(), end = std::min(first + kBlockRows, rows_);
  const WeightMatrix block = part(first, end - first);
  if (factor.narrow)
    return multiply_bf16(factor.narrow, n, block.data_, block.rows_, cols_, y + first, rows_);
  if (is_plain_read(n)) {
    return cpu::multiply_weights(block.data_, type_, block.rows_, cols_, factor.x->data(), n, y + first,
                                 rows_);
  }
  if (type_ == Type::kF32 && std::bit_cast<uintptr_t>(data_) % alignof(float) == 0) {
    return cpu::multiply_packed(reinterpret_cast<const float*>(block.data_), block.rows_, cols_,
                                factor.packed, n, y + first, rows_);
  }
  thread_local std::vector<float> panel;
  panel.resize(static_cast<size_t>(kPanelRows * cols_));
  for (; first < end; first += kPanelRows) {
    const int64_t rows = std::min(kPanelRows, end - first);
    read(first, rows, panel.data());
    cpu::multiply_packed(panel.data(), rows, cols_, factor.packed, n, y + first, rows_);
  }
}

namespace {

// Calls visit(matrix) for every matrix of a step.
void each_product(auto& weights, const auto& visit) {
  for (auto& l : weights.layers) {
    auto& in = l.recurrent_in;
    for (auto* m : {&l.wq, &l.wk, &l.wv, &l.wo, &in[0], &in[1], &in[2], &in[3], &l.recurrent_out, &l.gate,
                    &l.up, &l.down})
      if (m->rows() > 0) visit(*m);
  }
  visit(weights.classifier);
}

}  // namespace

std::vector<const WeightMatrix*> ModelWeights::products() const {
  std::vector<const WeightMatrix*> all;
  each_product(*this, [&](const WeightMatrix& m) { all.push_back(&m); });
  return all;
}

void ModelWeights::multiply_in_bf16(int64_t memory_bytes) {
  if (!can_multiply_bf16()) {
    throw std::invalid_argument(
        "workload.products: \"bf16\" needs a CPU with AVX512_BF16 or AMX and oneDNN, of which this machine "
        "or build lacks one; \"f32\" runs everywhere");
  }
  int64_t values = 0;
  each_product(*this, [&](const WeightMatrix& m) {
    values += m.type() == WeightMatrix::Type::kBf16 ? 0 : m.rows() * m.cols();
  });
  check_fits(path, values * int64_t{sizeof(uint16_t)}, memory_bytes);
  // They live as long as the files.
  struct Rounded {
    std::shared_ptr<const void> files;
    std::vector<uint16_t> values;
  };
  const auto rounded =
      std::make_shared<Rounded>(Rounded{files, std::vector<uint16_t>(static_cast<size_t>(values))});
  uint16_t* to = rounded->values.data();
  each_product(*this, [&](WeightMatrix& m) {
    if (m.type() != WeightMatrix::Type::kBf16) {
      const auto* data = reinterpret_cast<const std::byte*>(to);
      Matrix row(1, m.cols());
      for (int64_t r = 0; r < m.rows(); ++r) {
        m.read(r, 1, row.data());
        to = std::transform(row.data(), row.data() + row.size(), to, f32_to_bf16);
      }
      m = WeightMatrix(data, WeightMatrix::Type::kBf16, m.rows(), m.cols());
    }
    m = m.in_bf16();
  });
  files = rounded;
}

void check_fits(const std::string& path, int64_t weight_bytes, int64_t memory_bytes) {
  if (weight_bytes <= memory_bytes) return;
  throw std::invalid_argument("model " + path + ": its weights take " + std::to_string(weight_bytes) +
                              " bytes of memory, " + std::to_string(memory_bytes) +
                              " are available; a smaller model, or one in 16 bits, is needed");
}

}  // namespace kv::model
