#include "harness/experiments/score_attention.h"

#include <Eigen/Core>
#include <cmath>
#include <stdexcept>

namespace kv::experiments {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstMap = Eigen::Map<const Matrix>;

void attend_head(const PromptQueries& p, const workload::WorkloadShape& shape, int head,
                 Eigen::Map<Matrix> scores) {
  const int64_t d = shape.head_dim, rows = p.first + p.n;
  const int64_t kv_head = head / (shape.q_heads / shape.kv_heads);
  const ConstMap q(p.q + head * p.n * d, p.n, d);
  const ConstMap k(p.k + kv_head * p.tokens * d, rows, d), v(p.v + kv_head * p.tokens * d, rows, d);
  scores.noalias() = q * k.transpose();
  scores *= 1.0f / std::sqrt(static_cast<float>(d));
  if (p.mask) scores.rowwise() += Eigen::Map<const Eigen::RowVectorXf>(p.mask, rows);
  for (int64_t t = 0; t < p.n; ++t) {
    auto seen = scores.row(t).head(p.causal ? p.first + t + 1 : rows);
    seen = (seen.array() - seen.maxCoeff()).exp();
    seen /= seen.sum();
    if (p.causal) scores.row(t).tail(p.n - t - 1).setZero();
  }
  Eigen::Map<Matrix>(p.out + head * p.n * d, p.n, d).noalias() = scores * v;
}

}  // namespace

double score_bytes(const workload::WorkloadShape& shape, int64_t n, int64_t rows) {
  return sizeof(float) * static_cast<double>(shape.q_heads) * static_cast<double>(n) *
         static_cast<double>(rows);
}

void attend_with_scores(const PromptQueries& prompt, const workload::WorkloadShape& shape, Memory& memory) {
  const int64_t rows = prompt.first + prompt.n;
  if (rows > prompt.tokens) throw std::logic_error("attend_with_scores: more rows than the prompt has");
  if (score_bytes(shape, prompt.n, rows) > 1e18) throw std::bad_alloc();
  const Block block(memory, static_cast<size_t>(shape.q_heads * prompt.n * rows) * sizeof(float),
                    ByteKind::kWorkspace);
  auto* scores = reinterpret_cast<float*>(block.data());
#pragma omp parallel for schedule(dynamic, 1)
  for (int head = 0; head < shape.q_heads; ++head) {
    attend_head(prompt, shape, head, {scores + head * prompt.n * rows, prompt.n, rows});
  }
}

}  // namespace kv::experiments
