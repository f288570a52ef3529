#include "harness/experiments/model/model_steps.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "harness/math/random.h"
#include "harness/memory/machine.h"
#include "harness/model/cached_model.h"
#include "harness/model/step_parts.h"
#include "harness/model/uncached_model.h"
#include "harness/results/cell_columns.h"
#include "harness/verify/rows.h"
#include "variants/cache/prefill.h"
#include "variants/cache/spec.h"
#include "variants/model_cache/resolve.h"

namespace kv::experiments {
namespace {

constexpr int64_t kPromptChunk = 512;  // read at a time

// A state's size does not depend on its inputs; this many synthetic tokens fill it.
constexpr int64_t kStateTokens = 16;

// Synthetic tokens of a linear layer: keys of length about 1, decays of 0.9, steps of 1/2.
class LinearTokens {
 public:
  LinearTokens(const LinearShape& s, int64_t n, uint64_t key)
      : n_(n),
        k_(static_cast<size_t>(n * s.key_heads * s.key_dim)),
        v_(static_cast<size_t>(n * s.value_heads * s.value_dim)),
        alpha_(static_cast<size_t>(n * s.value_heads), 0.9f),
        beta_(alpha_.size(), 0.5f) {
    math::random::fill_normal(math::random::key({key, 0}), k_);
    math::random::fill_normal(math::random::key({key, 1}), v_);
    for (float& x : k_) x /= std::sqrt(static_cast<float>(s.key_dim));
  }
  StepInput input(SequenceId id) const {
    return {.sequence = id,
            .n = n_,
            .q = k_.data(),
            .k = k_.data(),
            .v = v_.data(),
            .alpha = alpha_.data(),
            .beta = beta_.data()};
  }

 private:
  const int64_t n_;
  std::vector<float> k_, v_, alpha_, beta_;
};

bool reads_whole_prompt(const LayerSpecs& specs) {
  return specs.any([](const Spec& spec) { return retention_of(spec).cuts_prompt || prefills_full(spec); });
}

}  // namespace

int64_t context_tokens(const measure::SweepPoint& point) {
  const config::MeasureConfig& m = point.experiment->measure;
  return point.seq_len - int64_t{m.steps} * m.repetitions - 1;
}

int64_t uncached_bytes(const measure::SweepPoint& point) {
  const model::ModelConfig& m = point.source->model()->config();
  // Floats of a layer: the residual and its norm; queries, keys and values twice; three of the feed-forward's.
  const double floats = 4.0 * m.dim + 3.0 * m.hidden_dim + 4.0 * (m.q_heads + m.kv_heads) * m.head_dim();
  const double activations = sizeof(float) * floats * point.batch * static_cast<double>(point.seq_len);
  return static_cast<int64_t>(std::min(activations, 1e18)) +
         measure::held_bytes(point, parse_layer_specs("contiguous")) +
         model::UncachedModel::held_bytes(point.batch, point.seq_len);
}

ModelSteps::ModelSteps(measure::Cell& cell, const measure::SweepPoint& point, workload::ContextRows& rows)
    : cell_(cell),
      point_(point),
      decoder_(new_decoder()),
      states_(point.source->shape().linear, point.source->shape().layers) {
  give_context(rows);
  cell.prompt = context_tokens(point);
  cell.ledger->reset_peaks();
  observe_verified_step(rows);
  step();
  decoder_->observe({});
}

void ModelSteps::observe_verified_step(workload::ContextRows& rows) {
  decoder_->observe([&](int layer, std::span<const StepInput> inputs) {
    const StepInput& in = inputs.front();
    if (in.alpha) return states_.record(layer, in);
    rows.record(layer, in);
    const model::ModelConfig& m = point_.source->model()->config();
    const auto last = [&](const float* rows) {
      return verify::token_of(rows, m.q_heads, in.n, in.n - 1, m.head_dim());
    };
    answers_.push_back({.layer = layer, .q = last(in.q), .out = last(in.out)});
  });
}

void ModelSteps::give_context(workload::ContextRows& rows) {
  if (cell_.uncached) return read_context(*decoder_);
  const auto& decoder = static_cast<const model::CachedModel&>(*decoder_);
  cell_.ids.assign(decoder.sequences().begin(), decoder.sequences().end());
  if (point_.experiment->settings[kContextKey] == "synthetic") return give_synthetic_context(rows);
  decoder_->observe([&](int layer, std::span<const StepInput> inputs) {
    const StepInput& in = inputs.front();
    in.alpha ? states_.record(layer, in) : rows.record(layer, in);
  });
  read_context(*decoder_);
}

void ModelSteps::give_synthetic_context(workload::ContextRows& rows) {
  // Few large steps, since some placements copy everything at each.
  const int64_t context = context_tokens(point_);
  workload::prefill(*cell_.cache, rows, cell_.ids, 0, context, 0, std::max<int64_t>(1024, context / 8));
  const workload::WorkloadShape& shape = point_.source->shape();
  for (int layer = 0; layer < shape.layers; ++layer) {
    if (cell_.cache->keeps_rows(layer)) continue;
    const int64_t n = std::min<int64_t>(context, kStateTokens);
    const LinearTokens tokens(shape.linear, n, math::random::key({point_.config->seed, 0x73746174}));
    for (const SequenceId id : cell_.ids) {
      const StepInput in = tokens.input(id);
      cell_.cache->step(layer, {&in, 1});
      if (id == cell_.ids.front()) states_.record(layer, in);
    }
  }
  static_cast<model::CachedModel&>(*decoder_).follow(context);
}

std::unique_ptr<model::Decoder> ModelSteps::new_decoder() const {
  // Any position will do: a step's time does not depend on the trained context.
  const model::Model& model = *point_.source->model();
  if (cell_.uncached) {
    return std::make_unique<model::UncachedModel>(model, *cell_.ledger, point_.batch, point_.seq_len,
                                                  model::Rotary::kBeyond);
  }
  return std::make_unique<model::CachedModel>(model, *cell_.cache, point_.batch, model::Rotary::kBeyond);
}

// Sequence i reads the text from token i * seq_len on and wraps around at its end; a model with random weights reads
// random tokens.
std::vector<int> ModelSteps::ids(int64_t first, int64_t n) const {
  const std::span<const int> text = point_.source->text();
  const auto vocabulary = static_cast<uint64_t>(point_.source->model()->config().vocab_size);
  std::vector<int> ids;
  for (int64_t i = 0; i < point_.batch; ++i) {
    for (int64_t t = first; t < first + n; ++t) {
      const auto at = static_cast<uint64_t>(i * point_.seq_len + t);
      ids.push_back(text.empty() ? static_cast<int>(math::random::below(point_.config->seed, at, vocabulary))
                                 : text[at % text.size()]);
    }
  }
  return ids;
}

void ModelSteps::read_context(model::Decoder& decoder) const {
  const int64_t context = context_tokens(point_),
                chunk = cell_.uncached || reads_whole_prompt(cell_.spec) ? context : kPromptChunk;
  for (int64_t first = 0; first < context; first += chunk) {
    const int64_t n = std::min(chunk, context - first);
    decoder.prompt(ids(first, n), n);
  }
}

measure::StepTimes ModelSteps::step() {
  const std::vector<int> next = ids(decoder_->tokens(), 1);
  const model::StepParts parts;
  measure::Stopwatch watch;
  decoder_->step(next, 1);
  const double us = watch.lap() * 1e6;
  weight_bytes_ = parts.weight_bytes();
  multiply_adds_ = parts.multiply_adds();
  const auto us_of = [&](model::Part part) { return parts.seconds(part) * 1e6; };
  measure::StepTimes times{.append_us = us_of(model::Part::kAppend),
                           .view_us = us_of(model::Part::kView),
                           .attend_us = us_of(model::Part::kAttend),
                           .projections_us = us_of(model::Part::kProjections),
                           .state_us = us_of(model::Part::kState)};
  times.rest_us = us - times.step_us();
  return times;
}

verify::Errors ModelSteps::errors(const workload::ContextRows& rows) const {
  // Without a cache: counts the bytes that one would hold of the computed rows.
  memory::Ledger ledger;
  std::unique_ptr<Cache> instead;
  SequenceId sequence = cell_.uncached ? 0 : cell_.ids.front();
  if (cell_.uncached) {
    instead = build_cache(parse_layer_specs("contiguous"), measure::cache_shape(point_, 1), ledger);
    sequence = instead->add_sequence();
    workload::prefill(*instead, rows, {&sequence, 1}, 0, tokens());
  }
  const model::ModelConfig& config = point_.source->model()->config();
  std::vector<verify::Output> outputs;
  for (const Answer& answer : answers_) {
    outputs.push_back({.sequence = sequence,
                       .workload_sequence = 0,
                       .layer = answer.layer,
                       .q = answer.q.data(),
                       .out = answer.out.data(),
                       .sink_logits = config.sinks(answer.layer),
                       .score_cap = config.score_cap,
                       .window = config.window(answer.layer)});
  }
  verify::Errors errors = verify::verify(instead ? *instead : *cell_.cache, rows, tokens(), outputs);
  errors.state_rel_l2 = states_.error();
  return errors;
}

void ModelSteps::account() const {
  if (cell_.uncached) return account_uncached();
  cell_.account(std::vector<int64_t>(cell_.ids.size(), tokens()));
}

void ModelSteps::account_uncached() const {
  const memory::Ledger& ledger = *cell_.ledger;
  ledger.assert_balanced();
  const int64_t held = model::UncachedModel::held_bytes(point_.batch, point_.seq_len);
  if (ledger.metadata().current_bytes != held || ledger.payload().current_bytes != 0) {
    throw std::logic_error("without a cache " + std::to_string(ledger.metadata().current_bytes) + " and " +
                           std::to_string(ledger.payload().current_bytes) + " bytes are held, not " +
                           std::to_string(held) + " of ids alone");
  }
  results::Row& row = cell_.result;
  row[results::kBytesPayload] = row[results::kBytesSlack] = row[results::kBytesDisk] = 0;
  row[results::kBytesMetadata] = row[results::kBytesPredicted] = held;
  row[results::kBytesWorkspacePeak] = ledger.workspace().peak_bytes + ledger.payload().peak_bytes;
  row[results::kPeakBytes] = ledger.peak_total_bytes();
  row[results::kBytesCopied] = ledger.copied_bytes();
  row[results::kBytesDevicePeak] = ledger.device().peak_bytes;
  row[results::kRssPeakBytes] = memory::peak_rss_bytes();
  row[results::kHeldBytesPerToken] = static_cast<double>(held) / static_cast<double>(point_.batch * tokens());
  // The least that attention of all tokens reads, each row once, and multiplies: a token sees itself and earlier
  // ones.
  const model::ModelConfig& m = point_.source->model()->config();
  cell_.read_bytes = 0;
  cell_.multiply_adds = {};
  for (int layer = 0; layer < m.layers; ++layer) {
    if (is_linear(m.kinds[static_cast<size_t>(layer)])) continue;
    const int64_t n = tokens(), window = m.window(layer) > 0 ? std::min(m.window(layer), n) : n;
    const int64_t pairs = window * (window + 1) / 2 + (n - window) * window;
    cell_.read_bytes +=
        2 * point_.batch * n * m.kv_heads * m.head_dim() * static_cast<int64_t>(sizeof(float));
    cell_.multiply_adds.floats += 2 * point_.batch * pairs * m.q_heads * m.head_dim();
  }
  cell_.reads_in_place = false;
}

double ModelSteps::read_prompt() const {
  const std::unique_ptr<model::Decoder> fresh = new_decoder();
  measure::Stopwatch watch;
  read_context(*fresh);
  const double seconds = watch.lap();
  if (!cell_.uncached) {
    for (const SequenceId id : static_cast<model::CachedModel&>(*fresh).sequences()) cell_.cache->release(id);
  }
  return seconds;
}

}  // namespace kv::experiments
