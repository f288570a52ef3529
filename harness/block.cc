#include "harness/block.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <new>
#include <stdexcept>

#include "harness/bytes.h"
#include "harness/environment.h"
#include "harness/experiments.h"
#include "harness/stats.h"
#include "harness/tasks.h"

namespace kv {
namespace {

using Cells = std::vector<std::unique_ptr<LiveCell>>;

constexpr const char* kNull = "null";  // of the key of a null A/B

// Reading this much is what "cold" is held against: well over twice the last-level cache.
int64_t cold_bytes() { return std::max<int64_t>(3 * last_level_cache_bytes(), int64_t{256} << 20); }

int cold_replicas(const LiveCell& cell) {
  return static_cast<int>(2 * last_level_cache_bytes() / std::max<int64_t>(1, cell.read_bytes)) + 1;
}

// Values of all heads, sequences and layers. In floating point, since a config may ask for absurdly many.
double values(const BlockPlan& plan, double heads, double tokens) {
  const WorkloadShape& w = plan.source->shape();
  return heads * tokens * w.head_dim * w.layers * plan.batch;
}

// What the block holds whatever the variant: the tokens that are fed, and the rows that an output is verified
// against.
double shared_bytes(const BlockPlan& plan) {
  const WorkloadShape& w = plan.source->shape();
  const bool growth = plan.experiment->kind == "growth";
  const auto fed = static_cast<double>(
      std::min(plan.seq_len, growth ? kGrowthLoad : int64_t{plan.experiment->measure.steps}));
  const double verified = 2.0 * (w.kv_heads + 2) * static_cast<double>(plan.seq_len) * w.head_dim;
  return sizeof(float) * (values(plan, w.q_heads + 2.0 * w.kv_heads, fed) + verified);
}

// What a cell needs at its peak: base and fork, and the cold copies.
int64_t needed_bytes(const BlockPlan& plan, const Spec& spec) {
  const int64_t once = held_bytes(plan, spec);
  if (plan.experiment->kind == "growth")
    return 3 * once;  // growing holds the old and the new buffer, and a slice
  const int64_t cold = plan.experiment->measure.cold_steps > 0 ? once + 2 * last_level_cache_bytes() : 0;
  return 3 * once + cold;
}

// Cells that fit into memory side by side: all of them, if they do.
std::vector<std::vector<LiveCell*>> groups(const BlockPlan& plan, const Cells& cells,
                                           const BlockLimits& limits) {
  std::vector<std::vector<LiveCell*>> groups;
  const auto shared = static_cast<int64_t>(std::min(shared_bytes(plan), 1e18));
  int64_t held = shared;
  for (const auto& cell : cells) {
    if (!runs(*cell)) continue;
    const int64_t needed = needed_bytes(plan, cell->spec);
    if (!fits(*cell, shared + needed, limits)) continue;
    if (groups.empty() || held + needed > limits.memory_bytes) {
      groups.emplace_back();
      held = shared;
    }
    groups.back().push_back(cell.get());
    held += needed;
  }
  return groups;
}

// One cell's feed; cells that read the same workload share it.
using Feeds = std::map<const Workload*, std::unique_ptr<TokenFeed>>;

class BlockRun {
 public:
  BlockRun(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results)
      : plan_(plan), limits_(limits), results_(results), measure_(plan.experiment->measure) {
    base_ = std::max<int64_t>(0, plan.seq_len - measure_.steps);
  }

  // False if it was stopped.
  bool run(const std::vector<LiveCell*>& group) {
    const bool growth = plan_.experiment->kind == "growth";
    feeds_.clear();
    growth_bytes_.clear();
    for (LiveCell* cell : group) {
      if (limits_.stop()) return false;
      prepare(*cell, growth);
    }
    std::vector<std::unique_ptr<TimedTask>> tasks;
    for (LiveCell* cell : group) {
      if (runs(*cell)) add_tasks(*cell, growth, tasks);
    }
    if (tasks.empty()) return true;
    const bool has_ceilings = !growth && !device_gpu();  // they are the CPU's
    if (has_ceilings) add_ceilings(group, tasks);
    try {
      if (!run_interleaved(tasks, measure_.repetitions, limits_.stop)) return false;
    } catch (const std::bad_alloc&) {
      for (LiveCell* cell : group) {
        if (runs(*cell)) give_up(*cell, "out_of_memory", "ran out of memory while it was timed");
        cell->steps.clear();
      }
    }
    for (LiveCell* cell : group) {
      if (!runs(*cell)) continue;
      cell->summarise();
      if (has_ceilings) set_ceilings(*cell);
      cell->cache.reset();
    }
    ceilings_.clear();
    return true;
  }

 private:
  // Verifies and accounts the cell, and leaves its cache ready to be timed.
  void prepare(LiveCell& cell, bool growth) {
    try {
      cell.workload = plan_.source->workload(cell.spec, plan_.seq_len);
      start_cache(cell, plan_.batch);
      if (growth) {
        verify_growth(cell);
      } else {
        verify_decode(cell);
      }
      if (!runs(cell)) return give_up(cell, "failed", cell.row.text("reason"));
      start_cache(cell, growth ? plan_.batch : 2 * plan_.batch);
      if (!growth) open_and_fill(cell);
    } catch (const OutOfBlocks& e) {
      give_up(cell, "out_of_memory", e.what());
    } catch (const std::bad_alloc&) {
      give_up(cell, "out_of_memory", "ran out of memory at " + human_bytes(limits_.memory_bytes));
    } catch (const std::invalid_argument& e) {
      give_up(cell, "unsupported", e.what());  // not at this geometry
    }
  }

  void start_cache(LiveCell& cell, int sequences) {
    cell.cache.reset();
    cell.ids.clear();
    cell.ledger = std::make_unique<Ledger>(limits_.memory_bytes);
    cell.cache = build_cache(cell.spec, cache_shape(plan_, sequences), *cell.ledger);
    cell.row.set("kernel", cell.cache->kernel());
  }

  void open_and_fill(LiveCell& cell) {
    for (int i = 0; i < plan_.batch; ++i) cell.ids.push_back(cell.cache->add_sequence());
    prefill(*cell.cache, *cell.workload, cell.ids, 0, base_);
    cell.prompt = base_;
  }

  TokenFeed& feed(const LiveCell& cell) {
    auto& feed = feeds_[cell.workload.get()];
    if (!feed) {
      feed = std::make_unique<TokenFeed>(*cell.workload, plan_.batch);
      if (plan_.experiment->kind == "decode") feed->load(base_, plan_.seq_len - base_);
    }
    return *feed;
  }

  void verify_decode(LiveCell& cell) {
    open_and_fill(cell);
    cell.ledger->reset_peaks();
    TokenFeed& tokens = feed(cell);
    for (int64_t t = base_; t < plan_.seq_len; ++t) cell.step(tokens, t, cell.ids, true);
    cell.account(std::vector<int64_t>(cell.ids.size(), plan_.seq_len));
    cell.check(tokens, plan_.seq_len);
  }

  void verify_growth(LiveCell& cell) {
    for (int i = 0; i < plan_.batch; ++i) cell.ids.push_back(cell.cache->add_sequence());
    TokenFeed tokens(*cell.workload, plan_.batch);
    std::vector<GrowthBytes>& bytes = growth_bytes_[&cell];
    for (int64_t t = 0; t < plan_.seq_len; ++t) {
      if (t % kGrowthLoad == 0) tokens.load(t, std::min(kGrowthLoad, plan_.seq_len - t));
      // Unless every step attends, only the last one does, to be checked.
      cell.step(tokens, t, cell.ids, measure_.attend || t + 1 == plan_.seq_len);
      cell.account(std::vector<int64_t>(cell.ids.size(), t + 1));
      bytes.push_back({.payload = std::stoll(cell.row.text("bytes_payload")),
                       .metadata = std::stoll(cell.row.text("bytes_metadata")),
                       .slack = std::stoll(cell.row.text("bytes_slack")),
                       .workspace = cell.ledger->workspace().current_bytes,
                       .copied = std::stoll(cell.row.text("bytes_copied"))});
    }
    cell.check(tokens, plan_.seq_len);
  }

  void add_tasks(LiveCell& cell, bool growth, std::vector<std::unique_ptr<TimedTask>>& tasks) {
    if (growth) {
      tasks.push_back(growth_task(cell, plan_.batch, measure_.attend, growth_bytes_[&cell], results_));
      return;
    }
    tasks.push_back(step_task(cell, feed(cell), base_, plan_.seq_len - base_, results_));
    if (measure_.cold_steps == 0) return;
    try {
      tasks.push_back(
          cold_task(cell, feed(cell), plan_.seq_len, measure_.cold_steps, cold_replicas(cell), results_));
    } catch (const std::bad_alloc&) {
      cell.row.set("reason", "no memory for cold copies");
    }
  }

  void add_ceilings(const std::vector<LiveCell*>& group, std::vector<std::unique_ptr<TimedTask>>& tasks) {
    const auto add = [&](int64_t bytes) {
      if (ceilings_.count(bytes)) return;
      auto task = std::make_unique<CeilingTask>(bytes);
      ceilings_[bytes] = task.get();
      tasks.push_back(std::move(task));
    };
    if (measure_.cold_steps > 0) add(cold_bytes());
    for (const LiveCell* cell : group) {
      if (runs(*cell)) add(hot_bytes(*cell));
    }
    const auto add_peak = [&](PeakTask::Kind kind) {
      auto task = std::make_unique<PeakTask>(kind);
      PeakTask* peak = task.get();
      tasks.push_back(std::move(task));
      return peak;
    };
    float_peak_ = add_peak(PeakTask::Kind::kFloats);
    code_peak_ = add_peak(PeakTask::Kind::kCodes);
  }

  // What one attend reads, or up to an eighth more, so that cells of about the same size share a ceiling; the
  // cold ceiling where that is out of any cache anyway.
  static int64_t hot_bytes(const LiveCell& cell) {
    const auto bytes = static_cast<uint64_t>(std::max<int64_t>(4096, cell.read_bytes));
    const uint64_t step = std::max<uint64_t>(4096, std::bit_floor(bytes) / 8);
    return std::min(static_cast<int64_t>((bytes + step - 1) / step * step), cold_bytes());
  }

  void set_ceilings(LiveCell& cell) {
    const double multiply_seconds =
        seconds_of(cell.multiply_adds, {float_peak_->per_second(), code_peak_->per_second()});
    cell.row.set("multiply_adds", cell.multiply_adds.total());
    cell.row.set("multiply_add_peak_per_s",
                 static_cast<double>(cell.multiply_adds.total()) / multiply_seconds);
    const auto set = [&](const std::string& kind, double gbps) {
      const Bound bound = bound_of(cell.read_bytes, gbps, multiply_seconds);
      cell.row.set(kind + "ceiling_gbps", gbps);
      cell.row.set(kind + "bound", bound.name);
      cell.row.set(kind + "bound_us", bound.us);
      if (const auto read = cell.row.number(kind + "read_gbps"))
        cell.row.set(kind + "ceiling_share", *read / gbps);
      if (const auto us = cell.row.number(kind + "attend_p50_us"))
        cell.row.set(kind + "bound_share", bound.us / *us);
    };
    set("", ceilings_.at(hot_bytes(cell))->gbps());
    if (measure_.cold_steps > 0) set("cold_", ceilings_.at(cold_bytes())->gbps());
  }

  const BlockPlan& plan_;
  const BlockLimits& limits_;
  ResultsFolder& results_;
  const MeasureConfig& measure_;
  int64_t base_;  // tokens before the timed steps
  Feeds feeds_;
  std::map<const LiveCell*, std::vector<GrowthBytes>> growth_bytes_;
  // Owned by the tasks of the group; ceilings by bytes.
  std::map<int64_t, CeilingTask*> ceilings_;
  PeakTask *float_peak_ = nullptr, *code_peak_ = nullptr;
};

void set_ratio(Row& row, const std::string& kind, const Ratio& ratio) {
  row.set(kind + "ratio_p50", ratio.value);
  if (!std::isfinite(ratio.interval.high)) return;
  row.set(kind + "ratio_ci_low", ratio.interval.low);
  row.set(kind + "ratio_ci_high", ratio.interval.high);
}

// Ratios to the block's first variant, where both were measured side by side.
void compare_to_baseline(const Cells& cells, const std::vector<std::vector<LiveCell*>>& groups) {
  LiveCell* baseline = cells.front().get();
  const auto group_of = [&](const LiveCell* cell) {
    for (size_t i = 0; i < groups.size(); ++i) {
      if (std::count(groups[i].begin(), groups[i].end(), cell)) return static_cast<int>(i);
    }
    return -1;
  };
  for (const auto& cell : cells) {
    if (cell->steps.empty() || baseline->steps.empty()) continue;
    if (cell.get() != baseline && group_of(cell.get()) != group_of(baseline)) {
      cell->row.set("reason", "not compared: the block does not fit into memory together with " +
                                  baseline->spec.print());
      continue;
    }
    compare_cell(*cell, *baseline, baseline->spec.print());
  }
}

}  // namespace

std::string BlockPlan::key(const Spec& spec, const std::string& suffix) const {
  return experiment->kind + " " + workload + " b" + std::to_string(batch) + " s" + std::to_string(seq_len) +
         shape + " " + spec.print() + (suffix.empty() ? "" : " " + suffix);
}

CacheShape cache_shape(const BlockPlan& plan, int sequences) {
  const WorkloadShape& w = plan.source->shape();
  return {.layers = w.layers,
          .q_heads = w.q_heads,
          .kv_heads = w.kv_heads,
          .head_dim = w.head_dim,
          .max_tokens = plan.seq_len,
          .max_sequences = sequences,
          .rope = w.rope};
}

void BlockProgress::add(double work) {
  const std::lock_guard lock(mutex_);
  limits_.progress((done_ += work) / total_);
}

bool runs(const LiveCell& cell) { return cell.row.text("status").empty() || cell.row.text("status") == "ok"; }

void give_up(LiveCell& cell, const char* status, const std::string& reason) {
  cell.row.set("status", status);
  cell.row.set("reason", reason);
  cell.cache.reset();
}

std::unique_ptr<LiveCell> make_cell(const BlockPlan& plan, const Spec& spec, const std::string& suffix) {
  auto cell = std::make_unique<LiveCell>();
  cell->key = plan.key(spec, suffix);
  cell->spec = spec;
  const WorkloadShape& w = plan.source->shape();
  Row& row = cell->row;
  row.set("cell", cell->key);
  row.set("variant", spec.print());
  row.set("device", device_gpu() ? "cuda" : "cpu");
  row.set("threads", plan.threads);
  row.set("experiment", plan.experiment->kind);
  row.set("phase", "decode");
  row.set("workload", plan.workload);
  row.set("layers", w.layers);
  row.set("q_heads", w.q_heads);
  row.set("kv_heads", w.kv_heads);
  row.set("head_dim", w.head_dim);
  row.set("batch", plan.batch);
  row.set("seq_len", plan.seq_len);
  const Axes& axes = plan.experiment->axes;
  const auto at = static_cast<size_t>(std::find(axes.variants.begin(), axes.variants.end(), spec) -
                                      axes.variants.begin());
  row.set("series", at < axes.series.size() ? axes.series[at] : spec.print());
  const std::string reason = device_gpu() ? gpu_unsupported_reason(spec, w.head_dim)
                                          : unsupported_reason(spec, plan.workload, w.head_dim);
  if (!reason.empty()) {
    give_up(*cell, "unsupported", reason);
  } else if (plan.seq_len > plan.source->max_tokens() &&
             !experiment_named(plan.experiment->kind).goes_beyond) {
    give_up(
        *cell, "unsupported",
        "workload '" + plan.workload + "' has only " + std::to_string(plan.source->max_tokens()) + " tokens");
  }
  return cell;
}

int64_t held_bytes(const BlockPlan& plan, const Spec& spec) {
  // The closed form, in whole numbers, could overflow.
  const double floats =
      sizeof(float) * values(plan, 2.0 * plan.source->shape().kv_heads, static_cast<double>(plan.seq_len));
  if (floats > 1e15) return static_cast<int64_t>(std::min(floats, 1e18));
  const std::vector<int64_t> lengths(static_cast<size_t>(plan.batch), plan.seq_len);
  return predicted_bytes(spec, cache_shape(plan, plan.batch), lengths);
}

bool fits(LiveCell& cell, int64_t needed_bytes, const BlockLimits& limits) {
  if (needed_bytes <= limits.memory_bytes) return true;
  give_up(cell, "out_of_memory",
          "needs " + human_bytes(needed_bytes) + " with its copies, and the run may use " +
              human_bytes(limits.memory_bytes) + " (measure.memory_share)");
  return false;
}

void compare_cell(LiveCell& cell, const LiveCell& baseline, const std::string& versus) {
  if (cell.steps.empty() || baseline.steps.empty()) return;
  if (&cell == &baseline) return cell.row.set("verdict", "baseline");
  const Ratio ratio = ratio_of_medians(step_medians(cell), step_medians(baseline), Pairing::kIndependent);
  cell.row.set("versus", versus);
  set_ratio(cell.row, "", ratio);
  if (!cell.cold_us.empty() && !baseline.cold_us.empty()) {
    const auto cold = repetition_medians(cell.cold_us), base = repetition_medians(baseline.cold_us);
    set_ratio(cell.row, "cold_", ratio_of_medians(cold, base, Pairing::kIndependent));
  }
  if (cell.row.text("verdict") == "null") return;
  const Verdict verdict = compare(ratio);
  cell.row.set("verdict", verdict == Verdict::kFaster   ? "faster"
                          : verdict == Verdict::kSlower ? "slower"
                                                        : "ambiguous");
}

std::vector<std::string> variant_keys(const BlockPlan& plan) {
  std::vector<std::string> keys;
  for (const Spec& spec : plan.experiment->axes.variants) keys.push_back(plan.key(spec));
  return keys;
}

// And the null A/B.
std::vector<std::string> timed_keys(const BlockPlan& plan) {
  std::vector<std::string> keys = variant_keys(plan);
  if (plan.experiment->measure.null_ab)
    keys.push_back(plan.key(plan.experiment->axes.variants.front(), kNull));
  return keys;
}

std::vector<Row> run_timed_block(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results) {
  Cells cells;
  for (const Spec& spec : plan.experiment->axes.variants) {
    cells.push_back(make_cell(plan, spec));
    // The null A/B comes next to what it is a copy of, so that the two are in one group.
    if (cells.size() > 1 || !plan.experiment->measure.null_ab) continue;
    cells.push_back(make_cell(plan, spec, kNull));
    cells.back()->row.set("verdict", "null");
  }
  const auto side_by_side = groups(plan, cells, limits);
  BlockRun run(plan, limits, results);
  for (const auto& group : side_by_side) {
    if (!run.run(group)) return {};
  }
  compare_to_baseline(cells, side_by_side);
  std::vector<Row> rows;
  for (const auto& cell : cells) rows.push_back(cell->row);
  return rows;
}

}  // namespace kv
