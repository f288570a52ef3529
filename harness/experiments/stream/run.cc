// The stream experiment: a model reads far past its trained context, with caches and with recomputed windows.
#include <algorithm>
#include <cmath>
#include <exception>
#include <numeric>
#include <stdexcept>

#include "harness/experiments/cell_plan.h"
#include "harness/experiments/list.h"
#include "harness/experiments/reading_run.h"
#include "harness/experiments/stream/axes.h"
#include "harness/experiments/stream/columns.h"
#include "harness/experiments/stream/recomputed_losses.h"
#include "harness/experiments/written_columns.h"
#include "harness/measure/chunk_replay.h"
#include "harness/measure/exposure.h"
#include "harness/measure/prediction.h"
#include "harness/measure/prediction_columns.h"
#include "harness/measure/timing.h"
#include "harness/model/cached_model.h"
#include "harness/results/cell_columns.h"

namespace kv::experiments {
namespace {

// Tokens read in chunks that are read again one by one: enough to fill windows.
constexpr int64_t kProvenTokens = 1024;

// Points of the chart; each covers whole stretches.
constexpr int64_t kBuckets = 20;

int64_t bucket_tokens(int64_t length) {
  const int64_t least = (length + kBuckets - 1) / kBuckets;
  return (least + measure::kStretch - 1) / measure::kStretch * measure::kStretch;
}

// 0 for one token.
int64_t first_stream_step(const measure::SweepPoint& point) {
  const int64_t step = std::min(point.experiment->settings[kStepTokensKey], point.seq_len);
  return step > 1 ? step : 0;
}

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

struct StreamCell {
  std::unique_ptr<measure::Cell> cell;
  int64_t recomputed = 0;                             // recomputed window, tokens; 0: read with a cache
  std::vector<measure::Prediction> predictions = {};  // [batch, seq_len]: losses, and their changes
};

class StreamRun {
 public:
  StreamRun(const measure::SweepPoint& point, const measure::RunControl& control, size_t cells)
      : point_(point),
        control_(control),
        model_(*point.source->model()),
        passages_(text_windows(point, point.seq_len)),
        progress_(control, static_cast<double>(cells) * point.batch * static_cast<double>(point.seq_len)) {}

  // Returns false if stopped. Every cell runs on one thread.
  bool run(std::vector<StreamCell>& cells) {
    std::vector<std::exception_ptr> thrown(cells.size());
#pragma omp parallel for schedule(dynamic, 1)
    for (size_t i = 0; i < cells.size(); ++i) {
      try {
        if (measure::runs(*cells[i].cell)) read(cells[i]);
      } catch (...) {
        thrown[i] = std::current_exception();
      }
    }
    for (const std::exception_ptr& e : thrown) {
      if (e) std::rethrow_exception(e);
    }
    return !control_.stop();
  }

 private:
  void read(StreamCell& c) {
    measure::Cell& cell = *c.cell;
    c.predictions.resize(static_cast<size_t>(point_.batch * point_.seq_len));
    measure::attempt(cell, [&] {
      measure::Stopwatch watch;
      c.recomputed > 0 ? recompute(c) : read_with_cache(c);
      const double seconds = watch.lap();
      if (control_.stop() || !measure::runs(cell)) return;
      cell.result[measure::kTokensPerS] = static_cast<double>(c.predictions.size()) / seconds;
      cell.result[results::kStatus] = results::Status::kOk;
      const int64_t step = point_.experiment->settings[kStepTokensKey];
      if (c.recomputed > 0 || step == 1) return;
      record_chunks(cell, step, difference_from_decode(c), [&] {
        return measure::replay_difference(model_, passages_, proven_tokens(), {.prompt = 0, .step = step},
                                          cell.spec, model::Rotary::kBeyond, point_.context->gpu());
      });
    });
  }

  void recompute(StreamCell& c) {
    const std::span<const int> ids(passages_.ids);
    const auto sequence = static_cast<size_t>(passages_.length + 1);
    const auto go_on = [&](int64_t tokens) {
      progress_.add(static_cast<double>(tokens));
      return !control_.stop();
    };
    for (int s = 0; s < passages_.sequences && !control_.stop(); ++s) {
      const auto losses = recomputed_losses(model_, ids.subspan(static_cast<size_t>(s) * sequence, sequence),
                                            c.recomputed, point_.experiment->settings[kStrideKey], go_on);
      for (size_t i = 0; i < losses.size(); ++i)
        c.predictions[static_cast<size_t>(s) * losses.size() + i].loss = losses[i];
    }
    c.cell->result[results::kKeptTokens] = std::min(c.recomputed, point_.seq_len);
  }

  void read_with_cache(StreamCell& c) {
    measure::Cell& cell = *c.cell;
    measure::open_cache(cell, point_, point_.batch);
    model::CachedModel decoder(model_, *cell.cache, point_.batch, model::Rotary::kBeyond);
    const int64_t step = point_.experiment->settings[kStepTokensKey];
    for (int64_t first = 0; first < passages_.length && !control_.stop(); first += step) {
      const int64_t n = std::min(step, passages_.length - first);
      read_step(decoder, first, n, c.predictions);
      progress_.add(static_cast<double>(n) * passages_.sequences);
    }
    if (control_.stop()) return;
    account(cell, decoder);
  }

  int64_t proven_tokens() const { return std::min(kProvenTokens, passages_.length); }

  // Largest difference of a loss when the first tokens are read again one by one.
  double difference_from_decode(const StreamCell& c) const {
    const int64_t length = proven_tokens();
    memory::Ledger ledger(point_.cache_bytes, point_.context->gpu());
    const auto cache = build_cache(c.cell->spec, cache_shape(point_, point_.batch), ledger);
    model::CachedModel decoder(model_, *cache, point_.batch, model::Rotary::kBeyond);
    std::vector<measure::Prediction> again(c.predictions.size());
    for (int64_t t = 0; t < length && !control_.stop(); ++t) read_step(decoder, t, 1, again);
    double most = 0;
    for (size_t i = 0; i < again.size(); ++i) {
      if (static_cast<int64_t>(i) % passages_.length >= length) continue;
      const double change = std::abs(again[i].loss - c.predictions[i].loss);
      if (!(change <= most)) most = change;  // NaN stays
    }
    return most;
  }

  // Tokens [first, first + n) of every sequence.
  void read_step(model::CachedModel& decoder, int64_t first, int64_t n,
                 std::vector<measure::Prediction>& predictions) const {
    std::vector<int> ids;
    for (int s = 0; s < passages_.sequences; ++s)
      for (int64_t i = first; i < first + n; ++i) ids.push_back(passages_.id(s, i));
    const std::vector<float> logits = decoder.step(ids, n);
    const auto vocab = logits.size() / ids.size();
    for (size_t at = 0; at < ids.size(); ++at) {
      const auto s = static_cast<int64_t>(at) / n, position = first + static_cast<int64_t>(at) % n;
      predictions[static_cast<size_t>(s * passages_.length + position)].loss = measure::loss_of(
          std::span(logits).subspan(at * vocab, vocab), passages_.id(static_cast<int>(s), position + 1));
    }
  }

  void account(measure::Cell& cell, const model::CachedModel& decoder) const {
    const std::span<const SequenceId> ids = decoder.sequences();
    cell.ids.assign(ids.begin(), ids.end());
    cell.prompt = first_stream_step(point_);
    cell.account(std::vector<int64_t>(ids.size(), passages_.length));
    cell.record_kept();
    const int64_t step = point_.experiment->settings[kStepTokensKey];
    measure::record_exposure(cell.result, cell.spec, cache_shape(point_, point_.batch),
                             {.length = passages_.length, .step = step}, stated_context(point_));
    cell.cache.reset();
  }

  const measure::SweepPoint& point_;
  const measure::RunControl& control_;
  const model::Model& model_;
  const measure::Passages passages_;
  measure::PointProgress progress_;
};

// The baseline of losses: the first recomputed window, or else the first variant.
const StreamCell* baseline_of(const std::vector<StreamCell>& cells) {
  const auto found =
      std::find_if(cells.begin(), cells.end(), [](const StreamCell& c) { return c.recomputed > 0; });
  const StreamCell& baseline = found == cells.end() ? cells.front() : *found;
  return baseline.cell->result[results::kStatus] == results::Status::kOk ? &baseline : nullptr;
}

void write_losses(results::Row& row, const measure::PredictionSummary& s, bool compared) {
  row[measure::kPredictions] = s.count;
  row[measure::kLoss] = s.loss;
  row[measure::kLossSe] = s.loss_error;
  if (!compared) return;
  row.set(measure::kLossChange, s.loss_change.value, s.loss_change.interval);
  row[measure::kLossChangeSe] = s.loss_change_error;
}

std::string verdict_of(const math::ConfidenceInterval& change) {
  if (change.low > 0) return "worse";
  return change.high < 0 ? "better" : "ambiguous";
}

void summarise_cell(StreamCell& c, const StreamCell* baseline) {
  for (size_t i = 0; baseline && i < c.predictions.size(); ++i)
    c.predictions[i].loss_change = c.predictions[i].loss - baseline->predictions[i].loss;
  results::Row& row = c.cell->result;
  const int64_t length = *row[results::kSeqLen];
  const measure::PredictionSummary s = measure::summarise(c.predictions, length, 0, length);
  write_losses(row, s, baseline);
  row[measure::kPerplexity] = std::exp(s.loss);
  row[measure::kPerplexitySe] = std::exp(s.loss) * s.loss_error;  // to first order
  if (baseline) {
    row[results::kVersus] = baseline->cell->result[results::kVariant];
    row[results::kVerdict] = baseline == &c              ? "baseline"
                             : measure::is_untested(row) ? results::kUntestedVerdict
                                                         : verdict_of(s.loss_change.interval);
  }
  if (std::isfinite(s.loss)) return;
  results::fail(row, results::Status::kFailed, "a prediction is not finite");
}

std::vector<results::Row> bucket_rows(const StreamCell& c, bool compared) {
  std::vector<results::Row> rows;
  const int64_t length = *c.cell->result[results::kSeqLen], bucket = bucket_tokens(length);
  for (int64_t first = 0; first < length; first += bucket) {
    const int64_t last = std::min(first + bucket, length);
    results::Row row = results::row_of(c.cell->result);
    row[measure::kPositionFirst] = first;
    row[measure::kPositionLast] = last - 1;
    write_losses(row, measure::summarise(c.predictions, length, first, last), compared);
    rows.push_back(std::move(row));
  }
  return rows;
}

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

// Plans a cell a variant, then one a recomputed window, whose arm counts from 1.
void plan_stream(measure::SweepPoint& point) {
  add_variants(point);
  // One cache a thread is alive; growing holds the old and the new buffer.
  fit_alone(point, [&](const measure::PlannedCell& cell) {
    return 2 * point.threads * measure::held_bytes(point, cell.spec);
  });
  const config::Settings& m = point.experiment->settings;
  for (size_t i = 0; i < m[kRecomputeKey].size(); ++i) {
    measure::PlannedCell& cell = add_cell(point, window_spec(m[kRecomputeKey][i]), recompute_suffix(point));
    cell.variant = cell.series = recompute_name(m[kRecomputeKey][i], m[kStrideKey]);
    cell.arm = i + 1;
  }
}

std::vector<StreamCell> stream_cells(const measure::SweepPoint& point) {
  const std::vector<int64_t>& windows = point.experiment->settings[kRecomputeKey];
  const int64_t trained = point.source->model()->config().max_tokens;
  std::vector<StreamCell> cells;
  for (const measure::PlannedCell& planned : point.cells) {
    cells.push_back({measure::make_cell(point, planned), planned.arm > 0 ? windows[planned.arm - 1] : 0});
    cells.back().cell->result[kTrainedTokens] = trained;
  }
  return cells;
}

std::vector<results::Row> run_stream(const measure::SweepPoint& point, const measure::RunControl& control,
                                     results::ResultsFolder& results) {
  std::vector<StreamCell> cells = stream_cells(point);
  if (!StreamRun(point, control, cells.size()).run(cells)) return {};
  const StreamCell* baseline = baseline_of(cells);
  std::vector<results::Row> rows;
  for (StreamCell& c : cells) {
    if (measure::runs(*c.cell)) {
      summarise_cell(c, baseline);
      results.add(measure::kPositions, bucket_rows(c, baseline != nullptr));
    }
    rows.push_back(c.cell->result);
  }
  return rows;
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
constexpr std::array kOwnOfStream{ColumnGroup{kStreamColumns}};
constexpr auto kStreamGroups = joined(kOfCells, kOwnOfStream, kOfModelRuns, kOfReadings);
constexpr const results::Table* kStreamTables[] = {&measure::kPositions};

const TableColumn kStreamTable[] = {kTokenBytesText, kPerplexityText, kLossChangeText, kRateText,
                                    kVerdictText};

constinit const Experiment kStream{.info = {.name = "stream",
                                            .help = "perplexity by position, far past the trained context",
                                            .keys = kStreamKeys,
                                            .needs_model = true},
                                   .beyond_trained_context = true,
                                   .first_step = first_stream_step,
                                   .check = check_stream,
                                   .columns = kStreamGroups,
                                   .tables = kStreamTables,
                                   .table = kStreamTable,
                                   .error = &kLossError,
                                   .plan = plan_stream,
                                   .run = run_stream};

}  // namespace kv::experiments
