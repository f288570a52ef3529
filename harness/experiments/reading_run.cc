#include "harness/experiments/reading_run.h"
#include "harness/experiments/reading_keys.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

#include "harness/experiments/cell_plan.h"
#include "harness/experiments/engine_cells.h"
#include "harness/experiments/trial.h"
#include "harness/measure/chunk_replay.h"
#include "harness/measure/exposure.h"
#include "harness/measure/prediction_columns.h"
#include "harness/model/codebooks.h"
#include "harness/results/cell_columns.h"

namespace kv::experiments {
namespace {

constexpr int64_t kFirstBucket = 16;  // positions

int64_t first_step(const measure::StepSchedule& schedule, int64_t length) {
  const int64_t tokens = std::min(schedule.tokens(0), length);
  return tokens > 1 ? tokens : 0;
}

Spec full_f32() { return parse_spec("contiguous"); }

// Equivalence is tested before difference: with paired differences an interval can exclude 0 by a millionth. A change
// of the mean loss counts as negligible if its interval lies within ± this value, 0.1 % of the perplexity.
constexpr double kNegligible = 1e-3;  // nats

std::string verdict_of(double low, double high) {
  if (std::max(-low, high) < kNegligible) return "negligible";
  if (low <= 0 && high >= 0) return "ambiguous";
  return low > 0 ? "worse" : "better";
}

class ReadingTrial : public Trial {
 public:
  ReadingTrial(const measure::SweepPoint& point, const measure::RunControl& control,
               results::ResultsFolder& results, const Script& script)
      : Trial(point, control, results),
        model_(*point.source->model()),
        script_(script),
        passages_(script.passages),
        schedule_(script.schedule),
        engines_(point),
        progress_(control, (schedule_.step > 1 ? 2 : 1) *  // the second is check_chunks
                               static_cast<double>(passages_.length) *
                               static_cast<double>(point.cells.size())) {
    for (const measure::PlannedCell& cell : point.cells) {
      if (!cell.uncached) model::check_calibration(cell.spec, passages_.ids);
    }
  }

 private:
  bool prepare_all(const Group& group) override {
    memory::Ledger ledger(point().cache_bytes, point().context->gpu());
    const auto cache = build_cache(full_f32(), cache_shape(point(), point().batch), ledger);
    measure::Reading reference(model_, *cache, passages_);
    std::vector<measure::Reading*> readings;
    Group read;
    for (measure::Cell* cell : group) {
      if (control().stop()) return false;
      measure::attempt(*cell, [&] {
        if (!cell->peer.empty()) return read_by_engine(*cell);
        measure::open_cache(*cell, point(), point().batch);
        readings.push_back(&readings_.try_emplace(cell, model_, *cell->cache, passages_).first->second);
        read.push_back(cell);
      });
    }
    if (readings.empty()) return true;
    const auto go_on = [&](double tokens) {
      progress_.add(tokens * static_cast<double>(readings.size()));
      return !control().stop();
    };
    if (!measure::read_together(passages_, schedule_, reference, readings, go_on)) return false;
    for (measure::Cell* cell : read) measure::attempt(*cell, [&] { close(*cell); });
    return schedule_.step == 1 || check_chunks(read, go_on);
  }

  void read_by_engine(measure::Cell& cell) {
    engines_.read(cell, passages_);
    results::Row& row = cell.result;
    row[results::kVerdict] = verdict_of(*row[measure::kLossChange.low], *row[measure::kLossChange.high]);
    progress_.add(static_cast<double>(passages_.length));
    if (!script_.writes_positions) return;
    results::Row all = results::row_of(row);  // the engine tells no parts
    all.copy(row, measure::kPositions.columns);
    all[measure::kPositionFirst] = passages_.first;
    all[measure::kPositionLast] = passages_.end() - 1;
    results().add(measure::kPositions, {&all, 1});
  }

  void close(measure::Cell& cell) const {
    const model::CachedModel& decoder = readings_.at(&cell).decoder;
    if (decoder.failure()) std::rethrow_exception(decoder.failure());
    account_reading(cell, point(), decoder.sequences(), passages_, schedule_);
    const double tokens = static_cast<double>(passages_.sequences * passages_.length);
    cell.result[measure::kSharedSeconds] = decoder.shared_seconds();
    if (!cell.result[measure::kCalls]) {
      cell.result[measure::kCacheSeconds] = decoder.cache_seconds();
      cell.result[measure::kTokensPerS] = tokens / (decoder.cache_seconds() + decoder.shared_seconds());
    }
    if (schedule_.prompt > 0) cell.result[measure::kPrefill] = schedule_.full_prompt ? "full" : "stored";
    cell.result[results::kStatus] = results::Status::kOk;
  }

  // Reads the first sequence again, token by token, for all cells at once. Returns false if stopped.
  bool check_chunks(const Group& read, const std::function<bool(double)>& go_on) const {
    Group good;
    std::vector<LayerSpecs> specs;
    for (measure::Cell* cell : read) {
      if (!measure::runs(*cell)) continue;
      good.push_back(cell);
      specs.push_back(cell->spec);
    }
    if (good.empty()) return true;
    measure::Passages first = passages_;
    first.sequences = 1;
    measure::StepSchedule decode = schedule_;
    decode.step = 1;
    std::vector<std::vector<measure::Prediction>> again;
    try {
      again = measure::read_specs(model_, first, decode, specs, point().context->gpu(), go_on);
    } catch (...) {
      for (measure::Cell* cell : good) measure::attempt(*cell, [] { throw; });
      return true;
    }
    if (again.empty()) return false;
    for (size_t i = 0; i < good.size(); ++i)
      measure::attempt(*good[i], [&] { check_chunks(*good[i], again[i]); });
    return true;
  }

  void check_chunks(measure::Cell& cell, std::span<const measure::Prediction> again) const {
    double difference = 0;
    for (int64_t i = passages_.first; i < passages_.length; ++i) {
      const auto at = static_cast<size_t>(i);
      const double change = std::abs(again[at].loss - readings_.at(&cell).predictions[at].loss);
      if (!(change <= difference)) difference = change;  // NaN stays
    }
    record_chunks(cell, schedule_.step, difference, [&] {
      return measure::replay_difference(model_, passages_, passages_.length, schedule_, cell.spec,
                                        model::Rotary::kTrained, point().context->gpu());
    });
  }

  // The baseline is the variant that the config names, else the full f32 cache. KL is always from the latter.
  void compare(const measure::Cells& cells) override {
    LossBaseline baseline{.variant = full_f32().print()};
    if (!point().experiment->axes.baseline.empty()) {
      const measure::Cell& first = *cells.front();  // the config's reader puts the baseline first
      const auto reading = readings_.find(&first);
      baseline =
          reading == readings_.end() ? LossBaseline{} : baseline_of(first, reading->second.predictions);
    }
    for (const auto& cell : cells) {
      const auto reading = readings_.find(cell.get());
      if (reading == readings_.end() || !measure::runs(*cell)) continue;
      std::vector<measure::Prediction>& predictions = reading->second.predictions;
      summarise_reading(*cell, predictions, passages_, baseline, true);
      if (script_.writes_positions)
        results().add(measure::kPositions,
                      position_rows(*cell, predictions, passages_, doubling_ends(), true));
      if (script_.score) script_.score(cell->result, predictions);
    }
  }

  // Each later bucket is as long as all earlier ones together.
  std::vector<int64_t> doubling_ends() const {
    std::vector<int64_t> ends{kFirstBucket};
    while (ends.back() < passages_.length) ends.push_back(2 * ends.back());
    return ends;
  }

  const model::Model& model_;
  const Script& script_;
  const measure::Passages& passages_;
  const measure::StepSchedule schedule_;
  EngineCells engines_;
  measure::PointProgress progress_;
  std::map<const measure::Cell*, measure::Reading> readings_;
};

// Sets the columns shared by cells and position buckets.
void write_summary(results::Row& row, const measure::PredictionSummary& s, bool is_compared, bool diverges) {
  row[measure::kPredictions] = s.count;
  row[measure::kLoss] = s.loss;
  row[measure::kLossSe] = s.loss_error;
  if (is_compared) {
    row.set(measure::kLossChange, s.loss_change.value, s.loss_change.interval);
    row[measure::kLossChangeSe] = s.loss_change_error;
  }
  if (!diverges) return;
  row.set(measure::kKlMean, s.kl.value, s.kl.interval);
  row[measure::kKlMedian] = s.kl_median;
  row[measure::kKlP99] = s.kl_p99;
  row[measure::kKlP999] = s.kl_p999;
  row[measure::kKlMax] = s.kl_max;
  row.set(measure::kTop1Agreement, s.same_top.value, s.same_top.interval);
  row[measure::kPChangeRms] = s.p_change_rms;
}

}  // namespace

LossBaseline baseline_of(const measure::Cell& cell, std::span<const measure::Prediction> predictions) {
  if (!measure::runs(cell)) return {};
  LossBaseline baseline{.variant = cell.result[results::kVariant]};
  for (const measure::Prediction& p : predictions) baseline.losses.push_back(p.loss);
  const auto finite = [](double loss) { return std::isfinite(loss); };
  return std::ranges::all_of(baseline.losses, finite) ? baseline : LossBaseline{};
}

void summarise_reading(measure::Cell& cell, std::vector<measure::Prediction>& predictions,
                       const measure::Passages& passages, const LossBaseline& baseline, bool diverges) {
  for (size_t i = 0; i < baseline.losses.size(); ++i)
    predictions[i].loss_change = predictions[i].loss - baseline.losses[i];
  const measure::PredictionSummary s =
      measure::summarise(predictions, passages.length, passages.first, passages.end());
  const bool is_compared = !baseline.variant.empty();
  results::Row& row = cell.result;
  write_summary(row, s, is_compared, diverges);
  row[measure::kPerplexity] = std::exp(s.loss);
  row[measure::kPerplexitySe] = std::exp(s.loss) * s.loss_error;  // to first order
  if (is_compared) {
    row[results::kVersus] = baseline.variant;
    const bool same_as_full = baseline.losses.empty() && s.kl_max == 0 && s.p_change_rms == 0;
    row[results::kVerdict] = row[results::kVariant] == baseline.variant ? "baseline"
                             : measure::is_untested(row)                ? results::kUntestedVerdict
                             : same_as_full
                                 ? "identical"
                                 : verdict_of(s.loss_change.interval.low, s.loss_change.interval.high);
  }
  if (std::isfinite(s.loss)) return;
  results::fail(row, results::Status::kFailed, "a prediction is not finite");
}

std::vector<results::Row> position_rows(const measure::Cell& cell,
                                        std::span<const measure::Prediction> predictions,
                                        const measure::Passages& passages, std::span<const int64_t> ends,
                                        bool diverges) {
  const bool is_compared = !cell.result[results::kVersus].empty();
  std::vector<results::Row> rows;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    const int64_t first = std::max(begin, passages.first), last = std::min(end, passages.end());
    begin = end;
    if (first >= last) continue;
    results::Row& row = rows.emplace_back(results::row_of(cell.result));
    row[measure::kPositionFirst] = first;
    row[measure::kPositionLast] = last - 1;
    write_summary(row, measure::summarise(predictions, passages.length, first, last), is_compared, diverges);
  }
  return rows;
}

void account_reading(measure::Cell& cell, const measure::SweepPoint& point, std::span<const SequenceId> ids,
                     const measure::Passages& passages, const measure::StepSchedule& schedule) {
  cell.ids.assign(ids.begin(), ids.end());
  cell.prompt = first_step(schedule, passages.length);
  cell.account(std::vector<int64_t>(ids.size(), passages.length));
  cell.record_kept();
  measure::record_exposure(cell.result, cell.spec, cache_shape(point, point.batch),
                           {passages.length, passages.first, schedule.prompt, schedule.step},
                           stated_context(point));
  cell.cache.reset();
  if (!cell.spec.any([](const Spec& spec) { return !functions_of(spec).empty(); })) return;
  const memory::Ledger::Calls calls = cell.ledger->calls();
  cell.result[measure::kCalls] = calls.count;
  if (calls.count > 0) cell.result[measure::kCallUs] = calls.seconds * 1e6 / static_cast<double>(calls.count);
}

measure::StepSchedule schedule_of(const measure::SweepPoint& point) {
  const config::Settings& settings = point.experiment->settings;
  return {.prompt = settings[kPromptKey], .step = settings[kStepTokensKey]};
}

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

measure::Passages prompted_windows(const measure::SweepPoint& point) {
  measure::Passages windows = text_windows(point, point.seq_len);
  windows.first = point.experiment->settings[kPromptKey];
  if (!has_engines(point)) return windows;
  windows.first = point.seq_len / 2;  // llama-perplexity judges no others, and no token of the next window
  windows.left_out = 1;
  return windows;
}

void check_windows(const measure::SweepPoint& point) {
  check_length(point, point.seq_len, point.experiment->kind + ".seq_len");
  text_windows(point, point.seq_len);
  if (point.experiment->settings[kPromptKey] < point.seq_len) return;
  throw std::invalid_argument(config_prefix(point) + "a prompt of " +
                              std::to_string(point.experiment->settings[kPromptKey]) +
                              " tokens leaves nothing of " + std::to_string(point.seq_len) + " to decode");
}

std::string config_prefix(const measure::SweepPoint& point) {
  return point.config->path + ": [" + point.experiment->kind + "] ";
}

void check_length(const measure::SweepPoint& point, int64_t length, const std::string& setting,
                  int64_t rest) {
  const model::ModelConfig& model = point.source->model()->config();
  const int64_t most = model.max_tokens;
  if (length <= most) return;
  throw std::invalid_argument(config_prefix(point) + std::to_string(length) +
                              " tokens are past the model's " + (model.rotary ? "rotary table of " : "") +
                              std::to_string(most) + " positions: give " + setting + " at most " +
                              std::to_string(most - rest));
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
                                      results::ResultsFolder& results, const Script& script) {
  return ReadingTrial(point, control, results, script).run();
}

}  // namespace kv::experiments
