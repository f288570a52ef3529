#include "harness/measure/chunk_replay.h"

#include <algorithm>
#include <cmath>

#include "harness/memory/ledger.h"
#include "harness/verify/rows.h"
#include "variants/cache/cache.h"
#include "variants/cache/spec.h"

namespace kv::measure {
namespace {

double relative_difference(const std::vector<float>& got, const std::vector<float>& want) {
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double a = got[i], b = want[i];
    difference += (a - b) * (a - b);
    norm += b * b;
  }
  return difference == 0.0 ? 0.0 : std::sqrt(difference / norm);
}

// A cache that takes, one token at a time, the tokens that another took in chunks.
class SingleTokens {
 public:
  SingleTokens(Cache& chunked, Cache& single, int sequences) : chunked_(chunked), single_(single) {
    for (int i = 0; i < sequences; ++i) ids_.push_back(single.add_sequence());
    parted_.resize(static_cast<size_t>(sequences * chunked.shape().layers));
  }

  void replay(int layer, std::span<const StepInput> inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      char& parted = parted_[i * static_cast<size_t>(chunked_.shape().layers) + static_cast<size_t>(layer)];
      if (parted) continue;
      const double difference = step(layer, inputs[i], ids_[i]);
      parted =
          retention_of(chunked_.spec(layer)).scores && !keep_the_same(layer, inputs[i].sequence, ids_[i]);
      if (!parted && !(difference <= worst_)) worst_ = difference;  // NaN stays
    }
  }

  double worst() const { return worst_; }

 private:
  double step(int layer, const StepInput& in, SequenceId id) {
    const CacheShape& s = chunked_.shape();
    double worst = 0.0;
    for (int64_t t = 0; t < in.n; ++t) {
      const std::vector<float> q = verify::token_of(in.q, s.q_heads, in.n, t, s.head_dim),
                               k = verify::token_of(in.k, s.kv_heads, in.n, t, s.head_dim),
                               v = verify::token_of(in.v, s.kv_heads, in.n, t, s.head_dim);
      std::vector<float> out(q.size());
      const StepInput one{.sequence = id,
                          .n = 1,
                          .q = q.data(),
                          .k = k.data(),
                          .v = v.data(),
                          .out = out.data(),
                          .sink_logits = in.sink_logits,
                          .score_cap = in.score_cap};
      single_.step(layer, {&one, 1});
      const double d = relative_difference(verify::token_of(in.out, s.q_heads, in.n, t, s.head_dim), out);
      if (!(d <= worst)) worst = d;
    }
    return worst;
  }

  bool keep_the_same(int layer, SequenceId in_chunks, SequenceId alone) const {
    for (int head = 0; head < chunked_.shape().kv_heads; ++head) {
      if (chunked_.kept(in_chunks, layer, head) != single_.kept(alone, layer, head)) return false;
    }
    return true;
  }

  Cache &chunked_, &single_;
  std::vector<SequenceId> ids_;
  std::vector<char> parted_;  // [sequences, layers]
  double worst_ = 0.0;
};

}  // namespace

double replay_difference(const model::Model& model, const Passages& passages, int64_t length,
                         const StepSchedule& schedule, const LayerSpecs& spec, model::Rotary rotary,
                         cuda::Gpu* gpu) {
  const ModelShape shape = cache_shape(model.config(), passages.sequences, passages.length);
  memory::Ledger ledger(INT64_MAX, gpu);  // serves both caches
  const auto chunked = build_cache(spec, shape, ledger), single = build_cache(spec, shape, ledger);
  model::CachedModel reader(model, *chunked, passages.sequences, rotary);
  SingleTokens tokens(*chunked, *single, passages.sequences);
  reader.observe([&](int layer, std::span<const StepInput> inputs) { tokens.replay(layer, inputs); });
  for (int64_t first = 0, n; first < length; first += n) {
    n = std::min(schedule.tokens(first), length - first);
    reader.step(tokens_of_step(passages, first, n), n);
  }
  return tokens.worst();
}

}  // namespace kv::measure
