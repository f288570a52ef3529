#include "harness/experiments/prefill_check.h"

#include <algorithm>
#include <cmath>

#include "harness/verify/reference/attention.h"
#include "kernels/encode.h"
#include "variants/cache/build.h"
#include "variants/cache/spec.h"

namespace kv::experiments {
namespace {

// What is checked of one cell.
struct Checked {
  const measure::Cell& cell;
  std::span<const Prompt> prompts;
  bool stored;

  const CacheShape& shape() const { return cell.cache->shape(); }
  int64_t tokens() const {
    const Prompt::Chunk& last = prompts.front().chunks.back();
    return last.first + last.n;
  }
};

// The rows of a prompt's last token in `from` [heads, n, head_dim].
std::vector<float> last_rows(const std::vector<float>& from, int64_t n, int64_t head_dim) {
  std::vector<float> rows;
  for (auto end = from.begin() + n * head_dim;; end += n * head_dim) {
    rows.insert(rows.end(), end - head_dim, end);
    if (end == from.end()) return rows;
  }
}

verify::Errors check_last(const Checked& c) {
  std::vector<std::vector<float>> rows;  // q and out of the last token, [q_heads, head_dim] each
  std::vector<verify::Output> outputs;
  rows.reserve(2 * c.prompts.size());
  for (size_t i = 0; i < c.prompts.size(); ++i) {
    const Prompt::Chunk& last = c.prompts[i].chunks.back();
    const int layers = c.shape().layers, sequence = static_cast<int>(i) / layers;
    rows.push_back(last_rows(last.q, last.n, c.shape().head_dim));
    rows.push_back(last_rows(last.out, last.n, c.shape().head_dim));
    outputs.push_back({.sequence = c.cell.ids[static_cast<size_t>(sequence)],
                       .workload_sequence = sequence,
                       .layer = static_cast<int>(i) % layers,
                       .q = rows[2 * i].data(),
                       .out = rows[2 * i + 1].data()});
  }
  return verify::verify(*c.cell.cache, *c.cell.workload, c.tokens(), outputs,
                        c.prompts.front().chunks.front().n);
}

// What the first sequence attended to: the rows as stored, or the prompt's own.
void read_rows(const Checked& c, int layer, int kv_head, std::vector<float>& k, std::vector<float>& v) {
  const int d = c.shape().head_dim;
  const int64_t size = c.tokens() * d;
  if (!c.stored) {
    const Prompt& own = c.prompts[static_cast<size_t>(layer)];
    k.assign(own.k.begin() + kv_head * size, own.k.begin() + (kv_head + 1) * size);
    v.assign(own.v.begin() + kv_head * size, own.v.begin() + (kv_head + 1) * size);
    return;
  }
  k.resize(static_cast<size_t>(size));
  v.resize(k.size());
  int64_t at = 0;
  for (const Span& span : c.cell.cache->spans(c.cell.ids.front(), layer, kv_head)) {
    decode_rows(span.k, d, 0, span.rows, k.data() + at * d);
    decode_rows(span.v, d, 0, span.rows, v.data() + at * d);
    at += span.rows;
  }
}

// Of token t of a chunk.
double token_error(const Prompt::Chunk& chunk, int64_t t, int head, size_t head_dim, std::span<const float> k,
                   std::span<const float> v) {
  const int64_t rows = chunk.first + t + 1;
  const size_t at = static_cast<size_t>(head * chunk.n + t) * head_dim;
  const size_t seen = static_cast<size_t>(rows) * head_dim;
  const auto want =
      reference::attend({chunk.q.data() + at, head_dim}, k.first(seen), v.first(seen), rows).out;
  const std::vector<double> got(chunk.out.begin() + static_cast<int64_t>(at),
                                chunk.out.begin() + static_cast<int64_t>(at + head_dim));
  return verify::relative_l2(got, {want.data(), head_dim});
}

// The first, the middle and the last token of every chunk of the first sequence's layers; the first and the
// last head.
double worst_token_error(const Checked& c) {
  double worst = 0.0;
  std::vector<float> k, v;
  for (int layer = 0; layer < c.shape().layers; ++layer) {
    for (const int head : {0, c.shape().q_heads - 1}) {
      read_rows(c, layer, head / c.shape().group(), k, v);
      for (const Prompt::Chunk& chunk : c.prompts[static_cast<size_t>(layer)].chunks) {
        for (const int64_t t : {int64_t{0}, chunk.n / 2, chunk.n - 1}) {
          const double error = token_error(chunk, t, head, static_cast<size_t>(c.shape().head_dim), k, v);
          if (!(error <= worst)) worst = error;  // NaN stays
          if (std::isnan(worst)) return worst;
        }
      }
    }
  }
  return worst;
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

verify::Errors check_prompts(const measure::Cell& cell, std::span<const Prompt> prompts, bool stored) {
  const Checked c{cell, prompts, stored};
  verify::Errors errors;
  errors.kernel_bound = kernel_error_bound(cell.spec);
  if (stored) errors = check_last(c);
  if (stored && !retention_of(cell.spec).keeps_all) return errors;
  const double worst = worst_token_error(c);
  if (!(worst <= errors.kernel_rel_l2)) errors.kernel_rel_l2 = worst;  // NaN stays
  if (!stored) errors.metric("err_rel_l2") = worst;
  return errors;
}

}  // namespace kv::experiments
