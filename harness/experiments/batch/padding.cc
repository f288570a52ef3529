#include "harness/experiments/batch/padding.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "harness/experiments/cell_plan.h"
#include "harness/experiments/score_attention.h"
#include "harness/verify/reference/attention.h"
#include "variants/cache/spec.h"

namespace kv::experiments {
namespace {

class Scores {
 public:
  Scores(Cache& cache, std::span<const int64_t> padding, Memory& memory)
      : cache_(cache), padding_(padding.begin(), padding.end()), memory_(memory) {
    const CacheShape& s = cache.shape();
    shape_ = {.layers = s.layers, .q_heads = s.q_heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim};
    const auto values = static_cast<int64_t>(padding_.size()) * s.max_tokens;
    mask_ = Block(memory, static_cast<size_t>(values) * sizeof(float), ByteKind::kWorkspace);
    for (size_t i = 0; i < padding_.size(); ++i) {
      std::fill_n(mask(i), s.max_tokens, 0.0f);
      std::fill_n(mask(i), padding_[i], -std::numeric_limits<float>::infinity());
    }
  }

  void attend(int layer, std::span<const StepInput> inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const StepInput& in = inputs[i];
      // A contiguous cache: one span a head, and max_tokens rows from one head to the next.
      const Span rows = cache_.spans(in.sequence, layer, 0).front();
      attend_with_scores({.q = in.q,
                          .out = in.out,
                          .k = reinterpret_cast<const float*>(rows.k.data),
                          .v = reinterpret_cast<const float*>(rows.v.data),
                          .first = rows.rows - in.n,
                          .n = in.n,
                          .tokens = cache_.shape().max_tokens,
                          .mask = padding_[i] > 0 ? mask(i) : nullptr},
                         shape_, memory_);
    }
  }

 private:
  float* mask(size_t i) const {
    return reinterpret_cast<float*>(mask_.data()) + static_cast<int64_t>(i) * cache_.shape().max_tokens;
  }

  Cache& cache_;
  const std::vector<int64_t> padding_;
  Memory& memory_;
  workload::WorkloadShape shape_;
  Block mask_;  // [sequences, max_tokens]
};

// Error of one query head against FP64.
double head_error(const float* q, const float* out, std::span<const float> k, std::span<const float> v,
                  int64_t rows, size_t head_dim) {
  const auto want = reference::attend({q, head_dim}, k, v, rows).out;
  const std::vector<double> got(out, out + head_dim);
  return verify::relative_l2(got, {want.data(), head_dim});
}

}  // namespace

void add_padding_arms(measure::SweepPoint& point) {
  for (const std::string_view name : {kUnpadded, kPadded}) {
    measure::PlannedCell& cell =
        add_cell(point, parse_spec("contiguous"), point.axes[kLengths] + " " + std::string(name));
    cell.variant = cell.series = name;
    if (point.context->gpu()) refuse(cell, "the CPU computes its scores");
  }
}

std::vector<int64_t> padding_of(const measure::SweepPoint& point, const measure::Cell& cell) {
  std::vector<int64_t> padding;
  for (const int64_t tokens : point.tokens) padding.push_back(is_padded(cell) ? point.seq_len - tokens : 0);
  return padding;
}

void append_padding(Cache& cache, SequenceId sequence, int64_t rows) {
  if (rows == 0) return;
  const std::vector<float> zeros(static_cast<size_t>(cache.shape().kv_heads * rows * cache.shape().head_dim));
  const StepInput in{
      .sequence = sequence, .n = rows, .q = nullptr, .k = zeros.data(), .v = zeros.data(), .out = nullptr};
  for (int layer = 0; layer < cache.shape().layers; ++layer) cache.step(layer, {&in, 1});
}

measure::Attend score_attention(Cache& cache, std::span<const int64_t> padding, Memory& memory) {
  const auto scores = std::make_shared<Scores>(cache, padding, memory);
  return [scores](int layer, std::span<const StepInput> inputs) { scores->attend(layer, inputs); };
}

verify::Errors check_padded(const measure::Cell& cell, workload::TokenFeed& feed, int64_t token,
                            std::span<const int64_t> tokens) {
  const CacheShape& s = cell.cache->shape();
  const auto d = static_cast<size_t>(s.head_dim);
  double worst = 0.0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto sequence = static_cast<int>(i);
    const size_t head = static_cast<size_t>(tokens[i]) * d;
    std::vector<float> k(static_cast<size_t>(s.kv_heads) * head), v(k.size());
    for (int layer = 0; layer < s.layers; ++layer) {
      cell.workload->read(sequence, layer, 0, tokens[i], nullptr, k.data(), v.data());
      for (const int h : {0, s.q_heads - 1}) {
        const size_t from = static_cast<size_t>(h / s.group()) * head, at = static_cast<size_t>(h) * d;
        const double error =
            head_error(feed.q(layer, sequence, token) + at, feed.out(layer, sequence) + at,
                       std::span(k).subspan(from, head), std::span(v).subspan(from, head), tokens[i], d);
        if (!(error <= worst)) worst = error;  // NaN stays
      }
    }
  }
  verify::Errors errors;
  errors.kernel_bound = kernel_error_bound(cell.spec);
  errors.kernel_rel_l2 = worst;
  errors.metric("err_rel_l2") = worst;
  return errors;
}

}  // namespace kv::experiments
