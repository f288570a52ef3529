// The stream experiment: a model reads far past its trained context, with caches and with recomputed windows.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>

#include "harness/experiments/cell_plan.h"
#include "harness/experiments/list.h"
#include "harness/experiments/reading_keys.h"
#include "harness/experiments/reading_run.h"
#include "harness/experiments/stream/recomputed_losses.h"
#include "harness/experiments/trial.h"
#include "harness/experiments/written_columns.h"
#include "harness/measure/chunk_replay.h"
#include "harness/measure/prediction.h"
#include "harness/measure/prediction_columns.h"
#include "harness/model/cached_model.h"
#include "harness/results/cell_columns.h"
#include "harness/results/column.h"

namespace kv::experiments {
namespace {

constexpr results::IntegerColumn kTrainedTokens{"trained_tokens", "tokens",
                                                "stream: context that the model was trained for"};
constexpr auto kStreamColumns = results::column_list(kTrainedTokens);

const config::Key<std::vector<int64_t>> kRecomputeKey{
    "recompute",
    config::SharedTable::kMeasure,
    {},
    config::token_list(),
    "lengths of windows that are recomputed for every `stride` tokens"};
const config::Key<int64_t> kStrideKey{"stride", config::SharedTable::kMeasure, 32,
                                      config::tokens(1, config::kMaxTokens),
                                      "tokens between two recomputations of a window"};

// Tokens read in chunks that are read again one by one: enough to fill windows.
constexpr int64_t kProvenTokens = 1024;

constexpr int64_t kBuckets = 20;  // points of the chart

// This cache keeps the same tokens as a recomputation.
Spec window_spec(int64_t window) {
  return parse_spec("contiguous/ring(window=" + std::to_string(window) + ")");
}

std::string recompute_name(int64_t window, int64_t stride) {
  return "recompute(window=" + std::to_string(window) + ",stride=" + std::to_string(stride) + ")";
}

std::string recompute_suffix(const measure::SweepPoint& point) {
  return "recomputed every " + std::to_string(point.experiment->settings[kStrideKey]);
}

// Tokens of the recomputed window that a variant names; 0: it reads with a cache.
int64_t recomputed_window(const measure::SweepPoint& point, const std::string& variant) {
  for (const int64_t window : settings_of(point)[kRecomputeKey]) {
    if (variant == recompute_name(window, settings_of(point)[kStrideKey])) return window;
  }
  return 0;
}

class StreamTrial : public Trial {
 public:
  StreamTrial(const measure::SweepPoint& point, const measure::RunControl& control,
              results::ResultsFolder& results)
      : Trial(point, control, results),
        model_(*point.source->model()),
        passages_(text_windows(point, point.seq_len)),
        schedule_(schedule_of(point)),
        progress_(control, static_cast<double>(point.cells.size()) * point.batch *
                               static_cast<double>(point.seq_len)) {}

 private:
  How how() const override { return How::kAThreadEach; }

  void identify(measure::Cell& cell) override {
    cell.result[kTrainedTokens] = model_.config().max_tokens;
    losses_[&cell].resize(static_cast<size_t>(point().batch * point().seq_len));
  }

  void prepare(measure::Cell& cell) override {
    std::vector<measure::Prediction>& losses = losses_.at(&cell);
    const int64_t window = recomputed_window(point(), cell.result[results::kVariant]);
    measure::Stopwatch watch;
    window > 0 ? recompute(cell, window, losses) : read_with_cache(cell, losses);
    const double seconds = watch.lap();
    if (control().stop() || !measure::runs(cell)) return;
    if (!cell.result[measure::kCalls])
      cell.result[measure::kTokensPerS] = static_cast<double>(losses.size()) / seconds;
    cell.result[results::kStatus] = results::Status::kOk;
    if (window > 0 || schedule_.step == 1) return;
    record_chunks(cell, schedule_.step, difference_from_decode(cell, losses), [&] {
      return measure::replay_difference(model_, passages_, proven_tokens(), schedule_, cell.spec,
                                        model::Rotary::kBeyond, point().context->gpu());
    });
  }

  void recompute(measure::Cell& cell, int64_t window, std::vector<measure::Prediction>& into) {
    const std::span<const int> ids(passages_.ids);
    const auto sequence = static_cast<size_t>(passages_.length + 1);
    const auto go_on = [&](int64_t tokens) {
      progress_.add(static_cast<double>(tokens));
      return !control().stop();
    };
    for (int s = 0; s < passages_.sequences && !control().stop(); ++s) {
      const auto losses = recomputed_losses(model_, ids.subspan(static_cast<size_t>(s) * sequence, sequence),
                                            window, settings()[kStrideKey], go_on);
      for (size_t i = 0; i < losses.size(); ++i)
        into[static_cast<size_t>(s) * losses.size() + i].loss = losses[i];
    }
    cell.result[results::kKeptTokens] = std::min(window, point().seq_len);
  }

  void read_with_cache(measure::Cell& cell, std::vector<measure::Prediction>& losses) {
    measure::open_cache(cell, point(), point().batch);
    model::CachedModel decoder(model_, *cell.cache, point().batch, model::Rotary::kBeyond);
    for (int64_t first = 0; first < passages_.length && !control().stop(); first += schedule_.step) {
      const int64_t n = std::min(schedule_.step, passages_.length - first);
      read_step(decoder, first, n, losses);
      progress_.add(static_cast<double>(n) * passages_.sequences);
    }
    if (!control().stop()) account_reading(cell, point(), decoder.sequences(), passages_, schedule_);
  }

  int64_t proven_tokens() const { return std::min(kProvenTokens, passages_.length); }

  // Largest difference of a loss when the first tokens are read again one by one.
  double difference_from_decode(const measure::Cell& cell,
                                std::span<const measure::Prediction> losses) const {
    const int64_t length = proven_tokens();
    memory::Ledger ledger(point().cache_bytes, point().context->gpu());
    const auto cache = build_cache(cell.spec, cache_shape(point(), point().batch), ledger);
    model::CachedModel decoder(model_, *cache, point().batch, model::Rotary::kBeyond);
    std::vector<measure::Prediction> again(losses.size());
    for (int64_t t = 0; t < length && !control().stop(); ++t) read_step(decoder, t, 1, again);
    double most = 0;
    for (size_t i = 0; i < again.size(); ++i) {
      if (static_cast<int64_t>(i) % passages_.length >= length) continue;
      const double change = std::abs(again[i].loss - losses[i].loss);
      if (!(change <= most)) most = change;  // NaN stays
    }
    return most;
  }

  // Tokens [first, first + n) of every sequence.
  void read_step(model::CachedModel& decoder, int64_t first, int64_t n,
                 std::vector<measure::Prediction>& predictions) const {
    const std::vector<int> ids = measure::tokens_of_step(passages_, first, n);
    const std::vector<float> logits = decoder.step(ids, n);
    const auto vocab = logits.size() / ids.size();
    for (size_t at = 0; at < ids.size(); ++at) {
      const auto s = static_cast<int64_t>(at) / n, position = first + static_cast<int64_t>(at) % n;
      predictions[static_cast<size_t>(s * passages_.length + position)].loss = measure::loss_of(
          std::span(logits).subspan(at * vocab, vocab), passages_.id(static_cast<int>(s), position + 1));
    }
  }

  // The baseline is the first recomputed window, or else the first variant.
  void compare(const measure::Cells& cells) override {
    const auto is_recomputed = [&](const auto& cell) {
      return recomputed_window(point(), cell->result[results::kVariant]) > 0;
    };
    const auto found = std::ranges::find_if(cells, is_recomputed);
    const measure::Cell& first = found == cells.end() ? *cells.front() : **found;
    const LossBaseline baseline = baseline_of(first, losses_.at(&first));
    for (const auto& cell : cells) {
      if (!measure::runs(*cell)) continue;
      summarise_reading(*cell, losses_.at(cell.get()), passages_, baseline, false);
      results().add(measure::kPositions,
                    position_rows(*cell, losses_.at(cell.get()), passages_, bucket_ends(), false));
    }
  }

  // Buckets cover whole stretches.
  std::vector<int64_t> bucket_ends() const {
    const int64_t least = (passages_.length + kBuckets - 1) / kBuckets,
                  bucket = (least + measure::kStretch - 1) / measure::kStretch * measure::kStretch;
    std::vector<int64_t> ends{bucket};
    while (ends.back() < passages_.length) ends.push_back(ends.back() + bucket);
    return ends;
  }

  const model::Model& model_;
  const measure::Passages passages_;
  const measure::StepSchedule schedule_;
  measure::PointProgress progress_;
  std::map<const measure::Cell*, std::vector<measure::Prediction>> losses_;  // [batch, seq_len]
};

void check_stream(const measure::SweepPoint& point) {
  const config::Settings& m = point.experiment->settings;
  const int64_t trained = point.source->model()->config().max_tokens;
  text_windows(point, point.seq_len);
  for (const int64_t window : m[kRecomputeKey]) {
    if (m[kStrideKey] <= window && window <= trained) continue;
    throw std::invalid_argument(
        point.config->path + ": [stream] recompute is " + std::to_string(window) +
        ": expected a window of at least the stride, " + std::to_string(m[kStrideKey]) +
        " tokens, and at most the model's trained context, " + std::to_string(trained));
  }
}

// Plans a cell a variant, then one a recomputed window.
void plan_stream(measure::SweepPoint& point) {
  add_variants(point);
  // One cache a thread is alive; growing holds the old and the new buffer.
  fit_alone(point, [&](const measure::PlannedCell& cell) {
    return 2 * point.threads * measure::held_bytes(point, cell.spec);
  });
  const config::Settings& m = point.experiment->settings;
  for (const int64_t window : m[kRecomputeKey]) {
    measure::PlannedCell& cell = add_cell(point, window_spec(window), recompute_suffix(point));
    cell.variant = cell.series = recompute_name(window, m[kStrideKey]);
  }
}

}  // namespace

std::vector<double> recomputed_losses(const model::Model& model, std::span<const int> ids, int64_t window,
                                      int64_t stride, const std::function<bool(int64_t tokens)>& go_on) {
  const int64_t length = static_cast<int64_t>(ids.size()) - 1;
  const auto vocab = static_cast<size_t>(model.config().vocab_size);
  std::vector<double> losses;
  for (int64_t first = 0; first < length; first += stride) {
    const int64_t last = std::min(first + stride, length), begin = std::max<int64_t>(0, last - window);
    const auto seen = ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(last - begin));
    std::vector<int64_t> positions(seen.size());
    std::iota(positions.begin(), positions.end(), 0);
    const auto scored = std::span<const int64_t>(positions).last(static_cast<size_t>(last - first));
    constexpr model::Rotary kRotary = model::Rotary::kTrained;
    const std::vector<float> logits = model.forward(seen, positions, model::full_attention(model.config()),
                                                    {&kRotary, 1}, scored, model::full_recurrence(model));
    for (int64_t t = first; t < last; ++t) {
      const auto row = std::span(logits).subspan(static_cast<size_t>(t - first) * vocab, vocab);
      losses.push_back(measure::loss_of(row, ids[static_cast<size_t>(t + 1)]));
    }
    if (!go_on(last - first)) break;
  }
  return losses;
}

constexpr const config::AnyKey* kStreamKeys[] = {&kStepTokensKey, &kRecomputeKey, &kStrideKey,
                                                 &kStatedContextKey};
constexpr auto kStreamGroups = joined(kOfCells, kStreamColumns, kOfModelRuns, kOfReadings);
constexpr const results::Table* kStreamTables[] = {&measure::kPositions};

const TableColumn kStreamTable[] = {kTokenBytesText, kPerplexityText, kLossChangeText, kRateText,
                                    kVerdictText};

constinit const Experiment kStream{.info = {.name = "stream",
                                            .help = "perplexity by position, far past the trained context",
                                            .keys = kStreamKeys,
                                            .needs_model = true},
                                   .beyond_trained_context = true,
                                   .first_step = first_reading_step,
                                   .check = check_stream,
                                   .columns = kStreamGroups,
                                   .tables = kStreamTables,
                                   .table = kStreamTable,
                                   .error = &kLossError,
                                   .calls_functions = true,
                                   .plan = plan_stream,
                                   .run = measured<StreamTrial>};

}  // namespace kv::experiments
