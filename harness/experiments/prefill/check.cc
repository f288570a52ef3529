#include "harness/experiments/prefill/check.h"

#include <algorithm>

#include "harness/verify/reference/attention.h"
#include "harness/verify/rows.h"
#include "variants/cache/compatibility.h"
#include "variants/cache/prefill.h"
#include "variants/cache/spec.h"

namespace kv::experiments {
namespace {

// Error of token t of a chunk, which sees `rows` rows.
double token_error(const Prompt::Chunk& chunk, int64_t t, int64_t rows, int head, size_t head_dim,
                   std::span<const float> k, std::span<const float> v) {
  const size_t at = static_cast<size_t>(head * chunk.n + t) * head_dim;
  const size_t seen = static_cast<size_t>(rows) * head_dim;
  const auto want =
      reference::attend({chunk.q.data() + at, head_dim}, k.first(seen), v.first(seen), rows).out;
  const std::vector<double> got(chunk.out.begin() + static_cast<int64_t>(at),
                                chunk.out.begin() + static_cast<int64_t>(at + head_dim));
  return verify::relative_l2(got, {want.data(), head_dim});
}

}  // namespace

Prompt::Prompt(const workload::Workload& workload, int sequence, int layer, int64_t tokens, int64_t chunk) {
  const workload::WorkloadShape& s = workload.shape();
  k.resize(static_cast<size_t>(s.kv_heads * tokens * s.head_dim));
  v.resize(k.size());
  workload.read(sequence, layer, 0, tokens, nullptr, k.data(), v.data());
  for (int64_t first = 0; first < tokens; first += chunk) {
    Chunk& c = chunks.emplace_back();
    c.first = first;
    c.n = std::min(chunk, tokens - first);
    c.q.resize(static_cast<size_t>(s.q_heads * c.n * s.head_dim));
    c.k.resize(static_cast<size_t>(s.kv_heads * c.n * s.head_dim));
    c.v.resize(c.k.size());
    c.out.resize(c.q.size());
    workload.read(sequence, layer, first, c.n, c.q.data(), c.k.data(), c.v.data());
  }
}

void PromptCheck::add(size_t chunk) {
  const auto d = static_cast<size_t>(shape().head_dim);
  std::vector<float> k, v;
  for (int layer = 0; layer < shape().layers; ++layer) {
    // A retention that dropped rows has lost most of the rows that these queries saw.
    if (stored_ && !retention_of(cell_.cache->spec(layer)).keeps_all) continue;
    const Prompt::Chunk& c = prompts_[static_cast<size_t>(layer)].chunks[chunk];
    for (const int head : {0, shape().q_heads - 1}) {
      const bool stored = stored_ && (chunk > 0 || !prefills_full(cell_.cache->spec(layer)));
      read_rows(stored, layer, head / shape().group(), c.first + c.n, k, v);
      for (const int64_t t : {int64_t{0}, c.n / 2, c.n - 1}) {
        const double error = token_error(c, t, c.first + (causal_ ? t + 1 : c.n), head, d, k, v);
        if (!(error <= worst_)) worst_ = error;  // NaN stays
      }
    }
  }
}

verify::Errors PromptCheck::finish() const {
  verify::Errors errors;
  errors.kernel_bound = kernel_error_bound(cell_.spec);
  if (stored_) errors = check_last();
  if (!(worst_ <= errors.kernel_rel_l2)) errors.kernel_rel_l2 = worst_;  // NaN stays
  if (!stored_) errors.metric("err_rel_l2") = worst_;
  return errors;
}

verify::Errors PromptCheck::check_last() const {
  std::vector<std::vector<float>> rows;  // q and out of the last token, [q_heads, head_dim] each
  std::vector<verify::Output> outputs;
  rows.reserve(2 * prompts_.size());
  const std::vector<Prompt::Chunk>& chunks = prompts_.front().chunks;
  for (size_t i = 0; i < prompts_.size(); ++i) {
    const Prompt::Chunk& last = prompts_[i].chunks.back();
    const int layers = shape().layers, sequence = static_cast<int>(i) / layers;
    for (const std::vector<float>* of : {&last.q, &last.out})
      rows.push_back(verify::token_of(of->data(), shape().q_heads, last.n, last.n - 1, shape().head_dim));
    outputs.push_back({.sequence = cell_.ids[static_cast<size_t>(sequence)],
                       .workload_sequence = sequence,
                       .layer = static_cast<int>(i) % layers,
                       .q = rows[2 * i].data(),
                       .out = rows[2 * i + 1].data()});
  }
  return verify::verify(*cell_.cache, *cell_.workload, chunks.back().first + chunks.back().n, outputs,
                        chunks.front().n);
}

// The first rows that the first sequence attended to: as stored, or the prompt's own.
void PromptCheck::read_rows(bool stored_rows, int layer, int kv_head, int64_t rows, std::vector<float>& k,
                            std::vector<float>& v) const {
  const int d = shape().head_dim;
  if (stored_rows) {
    verify::HeadRows stored = verify::stored_rows(*cell_.cache, cell_.ids.front(), layer, kv_head);
    k = std::move(stored.k);
    v = std::move(stored.v);
    return;
  }
  const Prompt& own = prompts_[static_cast<size_t>(layer)];
  const int64_t head = static_cast<int64_t>(own.k.size()) / shape().kv_heads;
  k.assign(own.k.begin() + kv_head * head, own.k.begin() + kv_head * head + rows * d);
  v.assign(own.v.begin() + kv_head * head, own.v.begin() + kv_head * head + rows * d);
}

}  // namespace kv::experiments
