#include "harness/experiments/reading_run.h"
#include "harness/experiments/reading_keys.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "harness/experiments/cell_plan.h"
#include "harness/measure/chunk_replay.h"
#include "harness/measure/exposure.h"
#include "harness/measure/prediction_columns.h"
#include "harness/model/codebooks.h"
#include "harness/results/cell_columns.h"

namespace kv::experiments {
namespace {

constexpr int64_t kFirstBucket = 16;  // positions; each later bucket is as long as all earlier ones together

measure::StepSchedule schedule_of(const measure::SweepPoint& point) {
  const config::Settings& settings = point.experiment->settings;
  return {.prompt = settings[kPromptKey], .step = settings[kStepTokensKey]};
}

int64_t first_step(const measure::StepSchedule& schedule, int64_t length) {
  const int64_t tokens = std::min(schedule.tokens(0), length);
  return tokens > 1 ? tokens : 0;
}

Spec full_f32() { return parse_spec("contiguous"); }

// A cell and its reader.
struct ReadingCell {
  std::unique_ptr<measure::Cell> cell;
  std::optional<measure::Reading> reading;
};

class ReadingRun {
 public:
  ReadingRun(const measure::SweepPoint& point, const measure::RunControl& control, measure::Passages passages,
             const measure::StepSchedule& schedule)
      : point_(point),
        control_(control),
        model_(*point.source->model()),
        passages_(std::move(passages)),
        schedule_(schedule) {}

  // Returns false if stopped.
  bool run(std::vector<ReadingCell>& cells) {
    const double times = schedule_.step > 1 ? 2 : 1;  // the second is check_chunks
    measure::PointProgress progress(
        control_, times * static_cast<double>(passages_.length) * static_cast<double>(cells.size()));
    for (size_t begin = 0; begin < cells.size();) {
      size_t end = begin;
      while (end < cells.size() && cells[end].cell->group == cells[begin].cell->group) ++end;
      if (!run_group(std::span(cells).subspan(begin, end - begin), progress)) return false;
      begin = end;
    }
    return true;
  }

 private:
  bool run_group(std::span<ReadingCell> cells, measure::PointProgress& progress) {
    std::vector<ReadingCell*> read;
    for (ReadingCell& c : cells) {
      if (measure::runs(*c.cell)) read.push_back(&c);
    }
    if (read.empty()) return true;
    memory::Ledger ledger(point_.cache_bytes, point_.context->gpu());
    const auto cache = build_cache(full_f32(), cache_shape(point_, point_.batch), ledger);
    measure::Reading reference(model_, *cache, passages_);
    std::vector<measure::Reading*> readings;
    for (ReadingCell* c : read) {
      if (open(*c)) readings.push_back(&*c->reading);
    }
    if (readings.empty()) return true;
    const auto go_on = [&](double tokens) {
      progress.add(tokens * static_cast<double>(cells.size()));
      return !control_.stop();
    };
    if (!measure::read_together(passages_, schedule_, reference, readings, go_on)) return false;
    for (ReadingCell* c : read) {
      if (c->reading) measure::attempt(*c->cell, [&] { close(*c); });
    }
    return schedule_.step == 1 || check_chunks(read, go_on);
  }

  bool open(ReadingCell& c) const {
    measure::Cell& cell = *c.cell;
    measure::attempt(cell, [&] {
      measure::open_cache(cell, point_, point_.batch);
      c.reading.emplace(model_, *cell.cache, passages_);
    });
    return measure::runs(cell);
  }

  void close(ReadingCell& c) const {
    measure::Cell& cell = *c.cell;
    measure::Reading& reading = *c.reading;
    if (reading.decoder.failure()) std::rethrow_exception(reading.decoder.failure());
    const std::span<const SequenceId> ids = reading.decoder.sequences();
    cell.ids.assign(ids.begin(), ids.end());
    cell.prompt = first_step(schedule_, passages_.length);
    cell.account(std::vector<int64_t>(ids.size(), passages_.length));
    cell.record_kept();
    measure::record_exposure(cell.result, cell.spec, cache_shape(point_, point_.batch),
                             {passages_.length, passages_.first, schedule_.prompt, schedule_.step},
                             stated_context(point_));
    const double tokens = static_cast<double>(passages_.sequences * passages_.length);
    cell.result[measure::kCacheSeconds] = reading.decoder.cache_seconds();
    cell.result[measure::kSharedSeconds] = reading.decoder.shared_seconds();
    cell.result[measure::kTokensPerS] =
        tokens / (reading.decoder.cache_seconds() + reading.decoder.shared_seconds());
    cell.cache.reset();
    cell.result[results::kStatus] = results::Status::kOk;
  }

  // Reads the first sequence again, token by token, for all cells at once. Returns false if stopped.
  bool check_chunks(std::span<ReadingCell* const> read, const std::function<bool(double)>& go_on) const {
    std::vector<const ReadingCell*> good;
    std::vector<LayerSpecs> specs;
    for (const ReadingCell* c : read) {
      if (!measure::runs(*c->cell)) continue;
      good.push_back(c);
      specs.push_back(c->cell->spec);
    }
    if (good.empty()) return true;
    measure::Passages first = passages_;
    first.sequences = 1;
    const measure::StepSchedule decode{.prompt = schedule_.prompt, .step = 1};
    std::vector<std::vector<measure::Prediction>> again;
    try {
      again = measure::read_specs(model_, first, decode, specs, point_.context->gpu(), go_on);
    } catch (...) {
      for (const ReadingCell* c : good) measure::attempt(*c->cell, [] { throw; });
      return true;
    }
    if (again.empty()) return false;
    for (size_t i = 0; i < good.size(); ++i)
      measure::attempt(*good[i]->cell, [&] { check_chunks(*good[i], again[i]); });
    return true;
  }

  void check_chunks(const ReadingCell& c, std::span<const measure::Prediction> again) const {
    double difference = 0;
    for (int64_t i = passages_.first; i < passages_.length; ++i) {
      const auto at = static_cast<size_t>(i);
      const double change = std::abs(again[at].loss - c.reading->predictions[at].loss);
      if (!(change <= difference)) difference = change;  // NaN stays
    }
    record_chunks(*c.cell, schedule_.step, difference, [&] {
      return measure::replay_difference(model_, passages_, passages_.length, schedule_, c.cell->spec,
                                        model::Rotary::kTrained, point_.context->gpu());
    });
  }

  const measure::SweepPoint& point_;
  const measure::RunControl& control_;
  const model::Model& model_;
  const measure::Passages passages_;
  const measure::StepSchedule schedule_;
};

// Equivalence is tested before difference: with paired differences an interval can exclude 0 by a millionth. A change
// of the mean loss counts as negligible if its interval lies within ± this value, 0.1 % of the perplexity.
constexpr double kNegligible = 1e-3;  // nats

std::string verdict_of(const measure::PredictionSummary& s) {
  const auto [low, high] = s.loss_change.interval;
  if (std::max(-low, high) < kNegligible) return "negligible";
  if (low <= 0 && high >= 0) return "ambiguous";
  return low > 0 ? "worse" : "better";
}

// Sets the columns shared by cells and position buckets.
void write_summary(results::Row& row, const measure::PredictionSummary& s) {
  row[measure::kPredictions] = s.count;
  row[measure::kLoss] = s.loss;
  row[measure::kLossSe] = s.loss_error;
  row.set(measure::kLossChange, s.loss_change.value, s.loss_change.interval);
  row[measure::kLossChangeSe] = s.loss_change_error;
  row.set(measure::kKlMean, s.kl.value, s.kl.interval);
  row[measure::kKlMedian] = s.kl_median;
  row[measure::kKlP99] = s.kl_p99;
  row[measure::kKlMax] = s.kl_max;
  row.set(measure::kTop1Agreement, s.same_top.value, s.same_top.interval);
  row[measure::kPChangeRms] = s.p_change_rms;
}

// The baseline of losses: the variant that the config names, else the full f32 cache. KL is always from the latter.
struct LossBaseline {
  std::string variant;         // empty if the named variant has no losses
  std::vector<double> losses;  // [sequences, length]; empty if the predictions are compared already
};

LossBaseline loss_baseline(const measure::SweepPoint& point, const std::vector<ReadingCell>& cells) {
  if (point.experiment->axes.baseline.empty()) return {.variant = full_f32().print(), .losses = {}};
  const ReadingCell& first = cells.front();  // the config's reader puts the baseline first
  if (!first.reading || !measure::runs(*first.cell)) return {};
  LossBaseline baseline{.variant = first.cell->spec.print(), .losses = {}};
  for (const measure::Prediction& p : first.reading->predictions) baseline.losses.push_back(p.loss);
  const auto finite = [](double loss) { return std::isfinite(loss); };
  return std::all_of(baseline.losses.begin(), baseline.losses.end(), finite) ? baseline : LossBaseline{};
}

void compare_losses(std::vector<measure::Prediction>& predictions, const LossBaseline& baseline) {
  for (size_t i = 0; i < baseline.losses.size(); ++i)
    predictions[i].loss_change = predictions[i].loss - baseline.losses[i];
}

void forget_change(results::Row& row) {
  for (const auto* column : {&measure::kLossChange.value(), &measure::kLossChange.low,
                             &measure::kLossChange.high, &measure::kLossChangeSe})
    row[*column].reset();
}

void summarise_cell(measure::Cell& cell, const std::vector<measure::Prediction>& predictions,
                    const measure::Passages& passages, const LossBaseline& baseline) {
  const measure::PredictionSummary s =
      measure::summarise(predictions, passages.length, passages.first, passages.length);
  write_summary(cell.result, s);
  cell.result[measure::kPerplexity] = std::exp(s.loss);
  cell.result[measure::kPerplexitySe] = std::exp(s.loss) * s.loss_error;  // to first order
  if (baseline.variant.empty()) {
    forget_change(cell.result);
  } else {
    cell.result[results::kVersus] = baseline.variant;
    const bool same_as_full = baseline.losses.empty() && s.kl_max == 0 && s.p_change_rms == 0;
    cell.result[results::kVerdict] = cell.spec.print() == baseline.variant ? "baseline"
                                     : measure::is_untested(cell.result)   ? results::kUntestedVerdict
                                     : same_as_full                        ? "identical"
                                                                           : verdict_of(s);
  }
  if (std::isfinite(s.loss)) return;
  results::fail(cell.result, results::Status::kFailed, "a prediction is not finite");
}

std::vector<results::Row> position_rows(const measure::Cell& cell,
                                        const std::vector<measure::Prediction>& predictions,
                                        const measure::Passages& passages) {
  const int64_t length = passages.length;
  std::vector<results::Row> rows;
  for (int64_t begin = 0, end = kFirstBucket; begin < length; begin = end, end *= 2) {
    const int64_t first = std::max(begin, passages.first), last = std::min(end, length);
    if (first >= last) continue;
    results::Row row = results::row_of(cell.result);
    row[measure::kPositionFirst] = first;
    row[measure::kPositionLast] = last - 1;
    write_summary(row, measure::summarise(predictions, length, first, last));
    if (cell.result[results::kVersus].empty()) forget_change(row);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

int64_t stated_context(const measure::SweepPoint& point) {
  const int64_t stated = point.experiment->settings[kStatedContextKey];
  return stated > 0 ? stated : point.source->model()->config().max_tokens;
}

int64_t first_reading_step(const measure::SweepPoint& point) {
  return first_step(schedule_of(point), point.seq_len);
}

measure::Passages text_windows(const measure::SweepPoint& point, int64_t length) {
  const std::string& text = point.text;
  const int64_t from = point.config->workload.text_from;
  return text_windows(point.source->text(), point.batch, length,
                      (text.empty() ? "Python's documentation" : "text " + text) +
                          (from > 0 ? " from token " + std::to_string(from) + " on" : ""));
}

measure::Passages text_windows(std::span<const int> text, int sequences, int64_t length,
                               const std::string& name) {
  const auto needed = static_cast<size_t>(sequences * length + 1);
  if (text.size() < needed) {
    throw std::invalid_argument(name + " has " + std::to_string(text.size()) + " tokens, but " +
                                std::to_string(sequences) + (sequences > 1 ? " windows of " : " window of ") +
                                std::to_string(length) + " need" + (sequences > 1 ? " " : "s ") +
                                std::to_string(needed) + ": give a longer text, or fewer or shorter windows");
  }
  measure::Passages p{.sequences = sequences, .length = length, .ids = {}};
  for (int s = 0; s < sequences; ++s) {
    const auto from = text.begin() + s * length;
    p.ids.insert(p.ids.end(), from, from + length + 1);
  }
  return p;
}

std::string where(const measure::SweepPoint& point) {
  return point.config->path + ": [" + point.experiment->kind + "] ";
}

void check_length(const measure::SweepPoint& point, int64_t length, const std::string& setting,
                  int64_t rest) {
  const model::ModelConfig& model = point.source->model()->config();
  const int64_t most = model.max_tokens;
  if (length <= most) return;
  throw std::invalid_argument(where(point) + std::to_string(length) + " tokens are past the model's " +
                              (model.rotary ? "rotary table of " : "") + std::to_string(most) +
                              " positions: give " + setting + " at most " + std::to_string(most - rest));
}

void record_chunks(measure::Cell& cell, int64_t step, double difference,
                   const std::function<double()>& replay) {
  cell.result[results::kArm] = "chunked";
  cell.result[results::kChunkTokens] = step;
  cell.result[measure::kChunkMaxDiff] = difference;
  constexpr double kRounding = 2e-3;  // nats; f32 sums in another order, through all layers
  std::string& check = cell.result[measure::kChunkCheck];
  check = measure::agrees_in_chunks(cell.spec) ? "losses" : "by_design";
  if (check == "by_design" || difference <= kRounding) return;
  check = "answers";
  const double answers = replay(),
               bound = 2 * kernel_error_bound(cell.spec);  // both ways have the kernel's error
  if (answers <= bound) return;
  results::fail(cell.result, results::Status::kFailed,
                "reading in chunks changes a loss by " + verify::in_short(difference) +
                    " nats, and outputs of the same q, k and v by " + verify::in_short(answers) + " (bound " +
                    verify::in_short(bound) + ")");
}

void fit_readings(measure::SweepPoint& point, int64_t first) {
  fit_readings(point, first, schedule_of(point));
}

void fit_readings(measure::SweepPoint& point, int64_t first, const measure::StepSchedule& schedule) {
  const measure::Passages passages{
      .sequences = point.batch, .length = point.seq_len, .ids = {}, .first = first};
  const int64_t step =
      measure::step_bytes(point.source->model()->config(), schedule, passages, std::ssize(point.cells));
  // Growing holds the old and the new buffer.
  fit_side_by_side(
      point, 2 * measure::held_bytes(point, full_f32()) + step,
      [&](const measure::PlannedCell& cell) { return 2 * measure::held_bytes(point, cell.spec); });
}

std::vector<results::Row> run_reading(const measure::SweepPoint& point, const measure::RunControl& control,
                                      const measure::Passages& passages, results::ResultsFolder* positions) {
  return run_reading(point, control, passages, positions, schedule_of(point), nullptr);
}

std::vector<results::Row> run_reading(const measure::SweepPoint& point, const measure::RunControl& control,
                                      const measure::Passages& passages, results::ResultsFolder* positions,
                                      const measure::StepSchedule& schedule, const ScoreCell& score) {
  std::vector<ReadingCell> cells;
  for (const measure::PlannedCell& planned : point.cells) {
    if (!planned.uncached) model::check_calibration(planned.spec, passages.ids);
    cells.push_back({measure::make_cell(point, planned), {}});
  }
  ReadingRun run(point, control, passages, schedule);
  if (!run.run(cells)) return {};
  const LossBaseline baseline = loss_baseline(point, cells);
  std::vector<results::Row> rows;
  for (ReadingCell& c : cells) {
    measure::Cell& cell = *c.cell;
    if (c.reading && measure::runs(cell)) {
      compare_losses(c.reading->predictions, baseline);
      summarise_cell(cell, c.reading->predictions, passages, baseline);
      if (positions)
        positions->add(measure::kPositions, position_rows(cell, c.reading->predictions, passages));
      if (score) score(cell.result, c.reading->predictions);
    }
    rows.push_back(cell.result);
  }
  return rows;
}

}  // namespace kv::experiments
