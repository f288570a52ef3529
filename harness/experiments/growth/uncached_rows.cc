#include "harness/experiments/growth/uncached_rows.h"

#include <algorithm>

#include "harness/results/cell_columns.h"
#include "harness/verify/rows.h"
#include "variants/cache/spec.h"

namespace kv::experiments {
namespace {

// Packs the first `tokens` of [heads, from_tokens, width].
void lay_out(const std::vector<float>& from, int64_t from_tokens, int64_t tokens, int64_t width,
             std::vector<float>& to) {
  const int64_t heads = std::ssize(from) / (from_tokens * width);
  to.resize(static_cast<size_t>(heads * tokens * width));
  for (int64_t h = 0; h < heads; ++h)
    std::copy_n(from.data() + h * from_tokens * width, tokens * width, to.data() + h * tokens * width);
}

}  // namespace

UncachedRows::UncachedRows(measure::Cell& cell, const measure::SweepPoint& point)
    : cell_(cell), tokens_(point.seq_len), sequences_(point.batch) {
  cell.ledger = std::make_unique<memory::Ledger>(point.cache_bytes);
  // Appends to an empty sequence allocate exactly the new rows.
  cache_ = build_cache(parse_spec("concat"), measure::cache_shape(point, point.batch), *cell.ledger);
  cell.result[results::kKernel] = cache_->kernel();
  const workload::WorkloadShape& s = cell.workload->shape();
  const auto values = [&](int heads) { return static_cast<size_t>(heads * tokens_ * s.head_dim); };
  for (int layer = 0; layer < s.layers; ++layer) {
    for (int i = 0; i < sequences_; ++i) {
      Rows& rows = prompts_.emplace_back(Rows{std::vector<float>(values(s.q_heads)),
                                              std::vector<float>(values(s.kv_heads)),
                                              std::vector<float>(values(s.kv_heads))});
      cell.workload->read(i, layer, 0, tokens_, rows.q.data(), rows.k.data(), rows.v.data());
    }
  }
}

int64_t UncachedRows::bytes(const measure::SweepPoint& point) {
  const workload::WorkloadShape& s = point.source->shape();
  const auto tokens = static_cast<double>(point.seq_len);
  // All inputs, one step's inputs, the outputs, and the rows of a layer of a sequence.
  const double inputs = measure::value_count(point, s.q_heads + 2.0 * s.kv_heads, tokens),
               outputs = measure::value_count(point, s.q_heads, tokens),
               one = tokens * s.head_dim * (s.q_heads + 4.0 * s.kv_heads);
  return static_cast<int64_t>(std::min(sizeof(float) * (inputs + outputs + one), 1e18));
}

StepInput UncachedRows::input(size_t at, int64_t tokens, SequenceId id) {
  const int64_t width = cache_->shape().head_dim;
  lay_out(prompts_[at].q, tokens_, tokens, width, step_.q);
  lay_out(prompts_[at].k, tokens_, tokens, width, step_.k);
  lay_out(prompts_[at].v, tokens_, tokens, width, step_.v);
  out_.resize(static_cast<size_t>(cache_->shape().q_heads * tokens * cache_->shape().out_dim()));
  return {.sequence = id,
          .n = tokens,
          .q = step_.q.data(),
          .k = step_.k.data(),
          .v = step_.v.data(),
          .out = out_.data()};
}

measure::StepTimes UncachedRows::step(int64_t tokens, bool attend) {
  measure::StepTimes times;
  for (size_t at = 0; at < prompts_.size(); ++at) {
    const int layer = static_cast<int>(at) / sequences_;
    const SequenceId id = cache_->add_sequence();
    const StepInput in = input(at, tokens, id);
    measure::Stopwatch watch;
    cache_->append(layer, {&in, 1});
    times.append_us += watch.lap() * 1e6;
    if (attend) {
      cache_->attend(layer, {&in, 1});
      times.attend_us += watch.lap() * 1e6;
    }
    const memory::Ledger& ledger = *cell_.ledger;
    step_bytes_ = ledger.payload().current_bytes + ledger.workspace().current_bytes;
    cache_->release(id);
  }
  return times;
}

verify::Errors UncachedRows::errors() {
  const CacheShape& s = cache_->shape();
  std::vector<std::vector<float>> newest;  // queries and outputs, [q_heads, width]
  const auto newest_of = [&](const std::vector<float>& rows, int64_t width) {
    newest.push_back(verify::token_of(rows.data(), s.q_heads, tokens_, tokens_ - 1, width));
    return newest.back().data();
  };
  std::vector<verify::Output> outputs;
  for (int i = 0; i < sequences_; ++i) {
    const SequenceId id = cache_->add_sequence();
    for (int layer = 0; layer < s.layers; ++layer) {
      const StepInput in = input(static_cast<size_t>(layer * sequences_ + i), tokens_, id);
      cache_->step(layer, {&in, 1});
      const float* q = newest_of(step_.q, s.head_dim);
      outputs.push_back({.sequence = id,
                         .workload_sequence = i,
                         .layer = layer,
                         .q = q,
                         .out = newest_of(out_, s.out_dim())});
    }
  }
  const verify::Errors errors = verify::verify(*cache_, *cell_.workload, tokens_, outputs);
  for (const verify::Output& output : outputs) {
    if (output.layer == 0) cache_->release(output.sequence);
  }
  return errors;
}

}  // namespace kv::experiments
