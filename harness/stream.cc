#include "harness/stream.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <new>
#include <stdexcept>

#include "harness/cached_model.h"
#include "harness/prediction.h"
#include "harness/quality.h"
#include "harness/timing.h"

namespace kv {
namespace {

// Of what was read in chunks, so many tokens are read again, one by one: enough for windows to be used up.
constexpr int64_t kProvenTokens = 1024;

// Points of the chart, of whole stretches.
constexpr int64_t kBuckets = 20;

int64_t bucket_tokens(int64_t length) {
  const int64_t least = (length + kBuckets - 1) / kBuckets;
  return (least + kStretch - 1) / kStretch * kStretch;
}

double loss_of(std::span<const float> logits, int came) {
  return -distribution_of(logits).log_p[static_cast<size_t>(came)];
}

// A re-computation keeps what this cache keeps.
Spec window_spec(int64_t window) {
  return parse_spec("contiguous/ring(window=" + std::to_string(window) + ")");
}

std::string recompute_name(int64_t window, int64_t stride) {
  return "recompute(window=" + std::to_string(window) + ",stride=" + std::to_string(stride) + ")";
}

std::string recompute_suffix(const BlockPlan& plan) {
  return "recomputed every " + std::to_string(plan.experiment->measure.stride);
}

struct StreamCell {
  std::unique_ptr<LiveCell> cell;
  int64_t recomputed = 0;                    // the window, in tokens; 0: read with a cache
  std::vector<Prediction> predictions = {};  // [batch, seq_len]: losses, and their changes
};

class StreamRun {
 public:
  StreamRun(const BlockPlan& plan, const BlockLimits& limits, size_t cells)
      : plan_(plan),
        limits_(limits),
        model_(*plan.source->model()),
        passages_(text_windows(plan, plan.seq_len)),
        progress_(limits, static_cast<double>(cells) * plan.batch * static_cast<double>(plan.seq_len)) {}

  // False if it was stopped. Every cell runs on one thread.
  bool run(std::vector<StreamCell>& cells) {
    std::vector<std::exception_ptr> thrown(cells.size());
#pragma omp parallel for schedule(dynamic, 1)
    for (size_t i = 0; i < cells.size(); ++i) {
      try {
        if (runs(*cells[i].cell)) read(cells[i]);
      } catch (...) {
        thrown[i] = std::current_exception();
      }
    }
    for (const std::exception_ptr& e : thrown) {
      if (e) std::rethrow_exception(e);
    }
    return !limits_.stop();
  }

 private:
  void read(StreamCell& c) {
    LiveCell& cell = *c.cell;
    c.predictions.resize(static_cast<size_t>(plan_.batch * plan_.seq_len));
    try {
      Stopwatch watch;
      c.recomputed > 0 ? recompute(c) : read_with_cache(c);
      const double seconds = watch.lap();
      if (limits_.stop() || !runs(cell)) return;
      cell.row.set("tokens_per_s", static_cast<double>(c.predictions.size()) / seconds);
      cell.row.set("status", "ok");
      const int64_t step = plan_.experiment->measure.step_tokens;
      if (c.recomputed == 0 && step > 1) record_chunks(cell, step, difference_from_decode(c));
    } catch (const std::invalid_argument& e) {
      give_up(cell, "unsupported", e.what());  // not at this geometry
    } catch (const std::bad_alloc&) {
      give_up(cell, "out_of_memory", "ran out of memory");
    }
  }

  void recompute(StreamCell& c) {
    const std::span<const int> ids(passages_.ids);
    const auto sequence = static_cast<size_t>(passages_.length + 1);
    const auto go_on = [&](int64_t tokens) {
      progress_.add(static_cast<double>(tokens));
      return !limits_.stop();
    };
    for (int s = 0; s < passages_.sequences && !limits_.stop(); ++s) {
      const auto losses = recomputed_losses(model_, ids.subspan(static_cast<size_t>(s) * sequence, sequence),
                                            c.recomputed, plan_.experiment->measure.stride, go_on);
      for (size_t i = 0; i < losses.size(); ++i)
        c.predictions[static_cast<size_t>(s) * losses.size() + i].loss = losses[i];
    }
    c.cell->row.set("kept_tokens", std::min(c.recomputed, plan_.seq_len));
  }

  void read_with_cache(StreamCell& c) {
    LiveCell& cell = *c.cell;
    // As many caches are alive as there are threads; growing holds the old and the new.
    if (!fits(cell, 2 * omp_get_num_threads() * held_bytes(plan_, cell.spec), limits_)) return;
    cell.ledger = std::make_unique<Ledger>(limits_.memory_bytes);
    cell.cache = build_cache(cell.spec, cache_shape(plan_, plan_.batch), *cell.ledger);
    cell.row.set("kernel", cell.cache->kernel());
    CachedModel decoder(model_, *cell.cache, plan_.batch, Rotary::kBeyond);
    const int64_t step = plan_.experiment->measure.step_tokens;
    for (int64_t first = 0; first < passages_.length && !limits_.stop(); first += step) {
      const int64_t n = std::min(step, passages_.length - first);
      read_step(decoder, first, n, c.predictions);
      progress_.add(static_cast<double>(n) * passages_.sequences);
    }
    if (limits_.stop()) return;
    account(cell, decoder);
  }

  // The largest of a loss, over the first tokens again, one by one.
  double difference_from_decode(const StreamCell& c) const {
    const int64_t length = std::min(kProvenTokens, passages_.length);
    Ledger ledger(limits_.memory_bytes);
    const auto cache = build_cache(c.cell->spec, cache_shape(plan_, plan_.batch), ledger);
    CachedModel decoder(model_, *cache, plan_.batch, Rotary::kBeyond);
    std::vector<Prediction> again(c.predictions.size());
    for (int64_t t = 0; t < length && !limits_.stop(); ++t) read_step(decoder, t, 1, again);
    double most = 0;
    for (size_t i = 0; i < again.size(); ++i) {
      if (static_cast<int64_t>(i) % passages_.length < length)
        most = std::max(most, std::abs(again[i].loss - c.predictions[i].loss));
    }
    return most;
  }

  // Tokens [first, first + n) of every sequence.
  void read_step(CachedModel& decoder, int64_t first, int64_t n, std::vector<Prediction>& predictions) const {
    std::vector<int> ids;
    for (int s = 0; s < passages_.sequences; ++s)
      for (int64_t i = first; i < first + n; ++i) ids.push_back(passages_.id(s, i));
    const std::vector<float> logits = decoder.step(ids, n);
    const auto vocab = logits.size() / ids.size();
    for (size_t at = 0; at < ids.size(); ++at) {
      const auto s = static_cast<int64_t>(at) / n, position = first + static_cast<int64_t>(at) % n;
      predictions[static_cast<size_t>(s * passages_.length + position)].loss = loss_of(
          std::span(logits).subspan(at * vocab, vocab), passages_.id(static_cast<int>(s), position + 1));
    }
  }

  void account(LiveCell& cell, const CachedModel& decoder) const {
    const std::span<const SequenceId> ids = decoder.sequences();
    cell.ids.assign(ids.begin(), ids.end());
    const int64_t step = std::min(plan_.experiment->measure.step_tokens, passages_.length);
    cell.prompt = step > 1 ? step : 0;
    cell.row.set("peak_bytes", cell.ledger->peak_total_bytes());
    cell.account(std::vector<int64_t>(ids.size(), passages_.length));
    cell.row.set("kept_tokens", static_cast<int64_t>(cell.cache->kept(ids.front(), 0, 0).size()));
    cell.cache.reset();
  }

  const BlockPlan& plan_;
  const BlockLimits& limits_;
  const Model& model_;
  const Passages passages_;
  BlockProgress progress_;
};

// What losses are compared with: the first window that is re-computed, or else the first variant.
const StreamCell* baseline_of(const std::vector<StreamCell>& cells) {
  const auto found =
      std::find_if(cells.begin(), cells.end(), [](const StreamCell& c) { return c.recomputed > 0; });
  const StreamCell& baseline = found == cells.end() ? cells.front() : *found;
  return baseline.cell->row.text("status") == "ok" ? &baseline : nullptr;
}

void write_losses(Row& row, const PredictionSummary& s, bool compared) {
  row.set("predictions", s.count);
  row.set("loss", s.loss);
  row.set("loss_se", s.loss_error);
  if (!compared) return;
  row.set("loss_change", s.loss_change.value);
  row.set("loss_change_ci_low", s.loss_change.interval.low);
  row.set("loss_change_ci_high", s.loss_change.interval.high);
}

std::string verdict_of(const ConfidenceInterval& change) {
  if (change.low > 0) return "worse";
  return change.high < 0 ? "better" : "ambiguous";
}

void summarise_cell(StreamCell& c, const StreamCell* baseline) {
  for (size_t i = 0; baseline && i < c.predictions.size(); ++i)
    c.predictions[i].loss_change = c.predictions[i].loss - baseline->predictions[i].loss;
  Row& row = c.cell->row;
  const int64_t length = std::stoll(row.text("seq_len"));
  const PredictionSummary s = summarise(c.predictions, length, 0, length);
  write_losses(row, s, baseline);
  row.set("perplexity", std::exp(s.loss));
  row.set("perplexity_se", std::exp(s.loss) * s.loss_error);  // to first order
  if (baseline) {
    row.set("versus", baseline->cell->row.text("variant"));
    row.set("verdict", baseline == &c ? "baseline" : verdict_of(s.loss_change.interval));
  }
  if (std::isfinite(s.loss)) return;
  row.set("status", "failed");
  row.set("reason", "a prediction is not finite");
}

std::vector<Row> bucket_rows(const StreamCell& c, bool compared) {
  std::vector<Row> rows;
  const int64_t length = std::stoll(c.cell->row.text("seq_len")), bucket = bucket_tokens(length);
  for (int64_t first = 0; first < length; first += bucket) {
    const int64_t last = std::min(first + bucket, length);
    Row row(position_columns());
    row.set("cell", c.cell->key);
    for (const char* column : {"variant", "seq_len", "batch"}) row.set(column, c.cell->row.text(column));
    row.set("position_first", first);
    row.set("position_last", last - 1);
    write_losses(row, summarise(c.predictions, length, first, last), compared);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<StreamCell> make_cells(const BlockPlan& plan) {
  std::vector<StreamCell> cells;
  for (const Spec& spec : plan.experiment->axes.variants) cells.push_back({make_cell(plan, spec)});
  for (const int64_t window : plan.experiment->measure.recompute) {
    cells.push_back({make_cell(plan, window_spec(window), recompute_suffix(plan)), window});
    for (const char* column : {"variant", "series"})
      cells.back().cell->row.set(column, recompute_name(window, plan.experiment->measure.stride));
  }
  const int64_t trained = plan.source->model()->config().max_tokens;
  for (StreamCell& c : cells) c.cell->row.set("trained_tokens", trained);
  return cells;
}

}  // namespace

std::vector<double> recomputed_losses(const Model& model, std::span<const int> ids, int64_t window,
                                      int64_t stride, const std::function<bool(int64_t tokens)>& go_on) {
  const int64_t length = static_cast<int64_t>(ids.size()) - 1;
  const auto vocab = static_cast<size_t>(model.config().vocab_size);
  std::vector<double> losses;
  for (int64_t first = 0; first < length; first += stride) {
    const int64_t last = std::min(first + stride, length), begin = std::max<int64_t>(0, last - window);
    const auto seen = ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(last - begin));
    const std::vector<float> logits = model.forward(seen, 0, full_attention(model.config()));
    for (int64_t t = first; t < last; ++t) {
      const auto row = std::span(logits).subspan(static_cast<size_t>(t - begin) * vocab, vocab);
      losses.push_back(loss_of(row, ids[static_cast<size_t>(t + 1)]));
    }
    if (!go_on(last - first)) break;
  }
  return losses;
}

void check_stream(const BlockPlan& plan) {
  const MeasureConfig& m = plan.experiment->measure;
  const int64_t trained = plan.source->model()->config().max_tokens;
  text_windows(plan, plan.seq_len);
  for (const int64_t window : m.recompute) {
    if (m.stride <= window && window <= trained) continue;
    throw std::invalid_argument(plan.config->path + ": [stream] recompute is " + std::to_string(window) +
                                ": expected a window of at least the stride, " + std::to_string(m.stride) +
                                " tokens, and at most the model's trained context, " +
                                std::to_string(trained));
  }
}

std::vector<std::string> stream_keys(const BlockPlan& plan) {
  std::vector<std::string> keys = variant_keys(plan);
  for (const int64_t window : plan.experiment->measure.recompute)
    keys.push_back(plan.key(window_spec(window), recompute_suffix(plan)));
  return keys;
}

std::vector<Row> run_stream_block(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results) {
  std::vector<StreamCell> cells = make_cells(plan);
  if (!StreamRun(plan, limits, cells.size()).run(cells)) return {};
  const StreamCell* baseline = baseline_of(cells);
  std::vector<Row> rows;
  for (StreamCell& c : cells) {
    if (runs(*c.cell)) {
      summarise_cell(c, baseline);
      results.add_positions(bucket_rows(c, baseline != nullptr));
    }
    rows.push_back(c.cell->row);
  }
  return rows;
}

}  // namespace kv
