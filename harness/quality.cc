#include "harness/quality.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <optional>
#include <stdexcept>

#include "harness/random.h"

namespace kv {
namespace {

constexpr int64_t kFirstBucket = 16;  // positions; every further bucket is as long as all before it

Pace pace_of(const BlockPlan& plan) {
  const MeasureConfig& m = plan.experiment->measure;
  return {.prompt = m.prompt, .step = m.step_tokens};
}

std::string where(const BlockPlan& plan) { return plan.config->path + ": [" + plan.experiment->kind + "] "; }

// `rest`: tokens beside those that `setting` names.
void check_length(const BlockPlan& plan, int64_t length, const std::string& setting, int64_t rest = 0) {
  const ModelConfig& model = plan.source->model()->config();
  if (model.sliding_window > 0 && length > model.sliding_window) {
    throw std::invalid_argument(where(plan) + "the model sees the last " +
                                std::to_string(model.sliding_window) +
                                " tokens only, and a full cache would show it " + std::to_string(length));
  }
  const int64_t most = model.max_tokens;
  if (length <= most) return;
  throw std::invalid_argument(where(plan) + std::to_string(length) +
                              " tokens are past the model's rotary table of " + std::to_string(most) +
                              " positions: give " + setting + " at most " + std::to_string(most - rest));
}

std::string recall_suffix(const BlockPlan& plan) {
  return "distance " + std::to_string(plan.distance) + " passage " + std::to_string(plan.passage);
}

// A cell and what reads for it.
struct ReadingCell {
  std::unique_ptr<LiveCell> cell;
  std::optional<Reading> reading;
};
using Cells = std::vector<ReadingCell>;

class ReadingRun {
 public:
  ReadingRun(const BlockPlan& plan, const BlockLimits& limits, Passages passages)
      : plan_(plan), limits_(limits), model_(*plan.source->model()), passages_(std::move(passages)) {}

  // False if it was stopped.
  bool run(Cells& cells) {
    BlockProgress progress(limits_,
                           static_cast<double>(passages_.length) * static_cast<double>(cells.size()));
    for (size_t begin = 0; begin < cells.size();) {
      const size_t end = group_end(cells, begin);
      if (!run_group(std::span(cells).subspan(begin, end - begin), progress)) return false;
      begin = end;
    }
    return true;
  }

 private:
  // The cells from `begin` on that fit into memory side by side, together with the reference.
  size_t group_end(Cells& cells, size_t begin) const {
    int64_t held = 2 * held_bytes(plan_, full_f32()) + step_bytes();
    size_t end = begin;
    for (; end < cells.size(); ++end) {
      LiveCell& cell = *cells[end].cell;
      if (!runs(cell)) continue;
      const int64_t needed = 2 * held_bytes(plan_, cell.spec);  // growing holds the old and the new
      if (held + needed > limits_.memory_bytes && end > begin) break;
      if (fits(cell, held + needed, limits_)) held += needed;
    }
    return end;
  }

  // What a step makes of the vocabulary: the reference's distributions, and each thread's logits and
  // distribution.
  int64_t step_bytes() const {
    const Pace pace = pace_of(plan_);
    const double rows = static_cast<double>(passages_.sequences) *
                        static_cast<double>(std::min(std::max(pace.prompt, pace.step), passages_.length));
    const double a_logit = sizeof(double) + sizeof(float) * (1.0 + plan_.threads);
    return static_cast<int64_t>(std::min(rows * model_.config().vocab_size * a_logit, 1e18));
  }

  static Spec full_f32() { return parse_spec("contiguous"); }

  bool run_group(std::span<ReadingCell> cells, BlockProgress& progress) {
    Ledger ledger(limits_.memory_bytes);
    const auto cache = build_cache(full_f32(), cache_shape(plan_, plan_.batch), ledger);
    Reading reference(model_, *cache, passages_);
    std::vector<Reading*> readings;
    for (ReadingCell& c : cells) {
      if (runs(*c.cell) && open(c)) readings.push_back(&*c.reading);
    }
    if (readings.empty()) return true;
    const auto go_on = [&](int64_t tokens) {
      progress.add(static_cast<double>(tokens) * static_cast<double>(cells.size()));
      return !limits_.stop();
    };
    if (!read_together(passages_, pace_of(plan_), reference, readings, go_on)) return false;
    for (ReadingCell& c : cells) {
      if (c.reading) close(c);
    }
    return true;
  }

  bool open(ReadingCell& c) const {
    LiveCell& cell = *c.cell;
    try {
      cell.ledger = std::make_unique<Ledger>(limits_.memory_bytes);
      cell.cache = build_cache(cell.spec, cache_shape(plan_, plan_.batch), *cell.ledger);
      cell.row.set("kernel", cell.cache->kernel());
      c.reading.emplace(model_, *cell.cache, passages_);
    } catch (const std::invalid_argument& e) {
      give_up(cell, "unsupported", e.what());  // not at this geometry
    } catch (const std::bad_alloc&) {
      give_up(cell, "out_of_memory", "ran out of memory");
    }
    return runs(cell);
  }

  void close(ReadingCell& c) const {
    LiveCell& cell = *c.cell;
    Reading& reading = *c.reading;
    if (!reading.failure.empty()) return give_up(cell, "out_of_memory", reading.failure);
    const std::span<const SequenceId> ids = reading.decoder.sequences();
    cell.ids.assign(ids.begin(), ids.end());
    const int64_t first_step = std::min(pace_of(plan_).tokens(0), passages_.length);
    cell.prompt = first_step > 1 ? first_step : 0;
    cell.row.set("peak_bytes", cell.ledger->peak_total_bytes());
    cell.account(std::vector<int64_t>(ids.size(), passages_.length));
    cell.row.set("kept_tokens", static_cast<int64_t>(cell.cache->kept(ids.front(), 0, 0).size()));
    const double tokens = static_cast<double>(passages_.sequences * passages_.length);
    cell.row.set("tokens_per_s", tokens / reading.seconds);
    cell.cache.reset();
    cell.row.set("status", "ok");
    if (plan_.experiment->measure.step_tokens > 1) check_chunks(c);
  }

  // The first sequence again, token by token.
  void check_chunks(ReadingCell& c) const {
    const Pace chunked = pace_of(plan_);
    Passages first = passages_;
    first.sequences = 1;
    const Pace decode{.prompt = chunked.prompt, .step = 1};
    const std::vector<Prediction> again = read_specs(model_, first, decode, {&c.cell->spec, 1}).front();
    double difference = 0;
    for (int64_t i = passages_.first; i < passages_.length; ++i) {
      const auto at = static_cast<size_t>(i);
      difference = std::max(difference, std::abs(again[at].loss - c.reading->predictions[at].loss));
    }
    record_chunks(*c.cell, chunked.step, difference);
  }

  const BlockPlan& plan_;
  const BlockLimits& limits_;
  const Model& model_;
  const Passages passages_;
};

// With paired differences an interval can leave out 0 by a millionth. A change of the mean loss that lies
// within this on either side, 0.1 % of the perplexity, is called negligible.
constexpr double kNegligible = 1e-3;  // nats

std::string verdict_of(const PredictionSummary& s, bool is_reference) {
  if (is_reference) return "baseline";
  if (s.kl_max == 0 && s.p_change_rms == 0) return "identical";
  const auto [low, high] = s.loss_change.interval;
  if (low <= 0 && high >= 0) return "ambiguous";
  if (std::max(-low, high) < kNegligible) return "negligible";
  return low > 0 ? "worse" : "better";
}

void write_mean(Row& row, const std::string& column, const Mean& mean) {
  row.set(column, mean.value);
  row.set(column + "_ci_low", mean.interval.low);
  row.set(column + "_ci_high", mean.interval.high);
}

// The columns that cells and position buckets share.
void write_summary(Row& row, const PredictionSummary& s) {
  row.set("predictions", s.count);
  row.set("loss", s.loss);
  row.set("loss_se", s.loss_error);
  write_mean(row, "loss_change", s.loss_change);
  write_mean(row, "kl_mean", s.kl);
  row.set("kl_median", s.kl_median);
  row.set("kl_p99", s.kl_p99);
  row.set("kl_max", s.kl_max);
  write_mean(row, "top1_agreement", s.same_top);
  row.set("p_change_rms", s.p_change_rms);
}

void summarise_cell(LiveCell& cell, const std::vector<Prediction>& predictions, const Passages& passages) {
  const PredictionSummary s = summarise(predictions, passages.length, passages.first, passages.length);
  write_summary(cell.row, s);
  cell.row.set("perplexity", std::exp(s.loss));
  cell.row.set("perplexity_se", std::exp(s.loss) * s.loss_error);  // to first order
  const std::string full = parse_spec("contiguous").print();
  cell.row.set("versus", full);
  cell.row.set("verdict", verdict_of(s, cell.spec.print() == full));
  if (std::isfinite(s.loss)) return;
  cell.row.set("status", "failed");
  cell.row.set("reason", "a prediction is not finite");
}

std::vector<Row> position_rows(const LiveCell& cell, const std::vector<Prediction>& predictions,
                               const Passages& passages) {
  const int64_t length = passages.length;
  std::vector<Row> rows;
  for (int64_t begin = 0, end = kFirstBucket; begin < length; begin = end, end *= 2) {
    const int64_t first = std::max(begin, passages.first), last = std::min(end, length);
    if (first >= last) continue;
    Row row(position_columns());
    row.set("cell", cell.key);
    for (const char* column : {"variant", "seq_len", "batch"}) row.set(column, cell.row.text(column));
    row.set("position_first", first);
    row.set("position_last", last - 1);
    write_summary(row, summarise(predictions, length, first, last));
    rows.push_back(std::move(row));
  }
  return rows;
}

// Reads and summarises; empty if it was stopped.
std::vector<Row> run_block(const BlockPlan& plan, const BlockLimits& limits, const Passages& passages,
                           const std::string& suffix, ResultsFolder* positions) {
  Cells cells;
  for (const Spec& spec : plan.experiment->axes.variants)
    cells.push_back({make_cell(plan, spec, suffix), {}});
  ReadingRun run(plan, limits, passages);
  if (!run.run(cells)) return {};
  std::vector<Row> rows;
  for (const ReadingCell& c : cells) {
    LiveCell& cell = *c.cell;
    if (c.reading && runs(cell)) {
      summarise_cell(cell, c.reading->predictions, passages);
      if (positions) positions->add_positions(position_rows(cell, c.reading->predictions, passages));
    }
    rows.push_back(cell.row);
  }
  return rows;
}

// Every sequence of its own, from the seed alone; ids below 3 are the tokenizer's marks.
std::vector<int> random_ids(const BlockPlan& plan, int64_t count) {
  constexpr uint64_t kStream = 0x7265'63616c6c;  // "recall"
  constexpr int kMarks = 3;
  const int vocab = plan.source->model()->config().vocab_size;
  std::vector<int> ids;
  for (int s = 0; s < plan.batch; ++s) {
    const uint64_t key = random::key({plan.config->seed, kStream, static_cast<uint64_t>(s)});
    for (int64_t i = 0; i < count; ++i) {
      const auto drawn = random::below(key, static_cast<uint64_t>(i), static_cast<uint64_t>(vocab - kMarks));
      ids.push_back(kMarks + static_cast<int>(drawn));
    }
  }
  return ids;
}

Passages recall_passages(const BlockPlan& plan) {
  const Recall recall{plan.distance, plan.passage};
  if (plan.experiment->measure.passages == "random")
    return with_repeat(random_ids(plan, recall.length() + 1), plan.batch, recall);
  return with_repeat(text_windows(plan, recall.length()).ids, plan.batch, recall);
}

}  // namespace

Passages text_windows(const BlockPlan& plan, int64_t length) {
  return text_windows(plan.source->text(), plan.batch, length, "text " + plan.config->workload.text);
}

Passages text_windows(std::span<const int> text, int sequences, int64_t length, const std::string& name) {
  const auto needed = static_cast<size_t>(sequences * length + 1);
  if (text.size() < needed) {
    throw std::invalid_argument(name + " has " + std::to_string(text.size()) + " tokens, but " +
                                std::to_string(sequences) + (sequences > 1 ? " windows of " : " window of ") +
                                std::to_string(length) + " need" + (sequences > 1 ? " " : "s ") +
                                std::to_string(needed) + ": give a longer text, or fewer or shorter windows");
  }
  Passages p{.sequences = sequences, .length = length, .ids = {}};
  for (int s = 0; s < sequences; ++s) {
    const auto from = text.begin() + s * length;
    p.ids.insert(p.ids.end(), from, from + length + 1);
  }
  return p;
}

Passages with_repeat(std::vector<int> ids, int sequences, const Recall& recall) {
  const int64_t length = recall.length();
  for (int s = 0; s < sequences; ++s) {
    const auto copy = ids.begin() + s * (length + 1) + Recall::kLead;
    std::copy_n(copy, recall.passage, copy + recall.distance);
  }
  // The prediction after token t is of token t + 1.
  return {.sequences = sequences,
          .length = length,
          .ids = std::move(ids),
          .first = Recall::kLead + recall.distance + Recall::kCue - 1};
}

void record_chunks(LiveCell& cell, int64_t step, double difference) {
  cell.row.set("arm", "chunked");
  cell.row.set("chunk_tokens", step);
  cell.row.set("chunk_max_diff", difference);
  constexpr double kRounding = 2e-3;  // nats; f32 sums in another order, through all layers
  if (difference <= kRounding || !agrees_in_chunks(cell.spec)) return;
  cell.row.set("status", "failed");
  cell.row.set("reason", "reading in chunks changes a loss by " + std::to_string(difference) + " nats");
}

void check_quality(const BlockPlan& plan) {
  check_length(plan, plan.seq_len, plan.experiment->kind + ".seq_len");
  text_windows(plan, plan.seq_len);
  if (plan.experiment->measure.prompt < plan.seq_len) return;
  throw std::invalid_argument(where(plan) + "a prompt of " + std::to_string(plan.experiment->measure.prompt) +
                              " tokens leaves nothing of " + std::to_string(plan.seq_len) + " to decode");
}

void check_recall(const BlockPlan& plan) {
  if (plan.passage <= Recall::kCue) {
    throw std::invalid_argument(where(plan) + "passage must be more than the " +
                                std::to_string(Recall::kCue) + " tokens that tell a copy, not " +
                                std::to_string(plan.passage));
  }
  if (plan.distance < plan.passage) {
    throw std::invalid_argument(where(plan) + "distance " + std::to_string(plan.distance) +
                                " is shorter than the passage of " + std::to_string(plan.passage) +
                                " tokens");
  }
  check_length(plan, plan.seq_len, "recall.distance and recall.passage together", Recall{0, 0}.length());
  if (plan.experiment->measure.passages == "text") text_windows(plan, plan.seq_len);
}

std::vector<std::string> recall_keys(const BlockPlan& plan) {
  std::vector<std::string> keys;
  for (const Spec& spec : plan.experiment->axes.variants) keys.push_back(plan.key(spec, recall_suffix(plan)));
  return keys;
}

std::vector<Row> run_quality_block(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results) {
  Passages windows = text_windows(plan, plan.seq_len);
  windows.first = plan.experiment->measure.prompt;
  return run_block(plan, limits, windows, "", &results);
}

std::vector<Row> run_recall_block(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder&) {
  std::vector<Row> rows = run_block(plan, limits, recall_passages(plan), recall_suffix(plan), nullptr);
  for (Row& row : rows) {
    row.set("distance", plan.distance);
    row.set("passage_tokens", plan.passage);
  }
  return rows;
}

}  // namespace kv
