#include "harness/prefill.h"

#include <algorithm>
#include <new>

#include "harness/bytes.h"
#include "harness/prefill_check.h"
#include "harness/score_attention.h"
#include "harness/stats.h"
#include "harness/tasks.h"
#include "variants/registry.h"

namespace kv {
namespace {

struct Arm {
  const char* name;
  int64_t chunk;  // tokens whose scores are in memory at once; 0: none are

  bool tiled() const { return chunk == 0; }
};

constexpr const char* kMaterialised = "materialised";
constexpr const char* kNull = "null";

// A chunk that is no shorter than the prompt would be the materialised arm again.
std::vector<Arm> arms(const BlockPlan& plan) {
  std::vector<Arm> arms{{kMaterialised, plan.seq_len}};
  for (const int64_t chunk : plan.experiment->axes.chunk) {
    if (chunk < plan.seq_len) arms.push_back({"chunked", chunk});
  }
  arms.push_back({"tiled", 0});
  return arms;
}

std::string suffix(const Arm& arm) {
  return std::string(arm.name) + (std::string(arm.name) == "chunked" ? " c" + std::to_string(arm.chunk) : "");
}

class PrefillCell {
 public:
  PrefillCell(const BlockPlan& plan, const Spec& spec, const Arm& arm, bool null_ab)
      : plan_(plan), arm_(arm), cell_(make_cell(plan, spec, suffix(arm) + (null_ab ? " null" : ""))) {
    Row& row = cell_->row;
    row.set("phase", "prefill");
    row.set("arm", arm.name);
    if (std::string(arm.name) == "chunked") row.set("chunk_tokens", arm.chunk);
    if (null_ab) row.set("verdict", kNull);
    if (runs(*cell_) && !arm.tiled() && retention_of(spec).scores) {
      give_up(*cell_, "unsupported",
              "what it keeps depends on its own attention, which only the tiled arm runs");
    }
  }

  LiveCell& cell() { return *cell_; }
  int64_t tokens() const { return plan_.batch * plan_.seq_len; }

  // Verifies and accounts, and leaves the prompt ready to be timed.
  void prepare(const BlockLimits& limits) {
    if (!fits(*cell_, needed_bytes(), limits)) return;
    memory_bytes_ = limits.memory_bytes;
    try {
      cell_->workload = plan_.source->workload(cell_->spec, plan_.seq_len);
      for (int i = 0; i < plan_.batch; ++i) {
        for (int layer = 0; layer < plan_.source->shape().layers; ++layer)
          prompts_.emplace_back(*cell_->workload, i, layer, plan_.seq_len, step_tokens());
      }
      open();
      run();
      cell_->row.set("kernel", arm_.tiled() ? cell_->cache->kernel() : "eigen/f32");
      cell_->prompt = step_tokens();
      cell_->account(std::vector<int64_t>(cell_->ids.size(), plan_.seq_len));
      check();
    } catch (const std::bad_alloc&) {
      give_up(*cell_, "out_of_memory", "ran out of memory at " + human_bytes(memory_bytes_));
    }
    close();
  }

  void open() {
    cell_->ledger = std::make_unique<Ledger>(memory_bytes_);
    cell_->cache = build_cache(cell_->spec, cache_shape(plan_, plan_.batch), *cell_->ledger);
    for (int i = 0; i < plan_.batch; ++i) cell_->ids.push_back(cell_->cache->add_sequence());
  }
  void close() {
    cell_->cache.reset();
    cell_->ids.clear();
  }

  // One sequence after another, each chunk through all layers.
  void run() {
    const int layers = plan_.source->shape().layers;
    for (int i = 0; i < plan_.batch; ++i) {
      const size_t chunks = prompts_.front().chunks.size();
      for (size_t c = 0; c < chunks; ++c) {
        for (int layer = 0; layer < layers; ++layer) step(prompt(i, layer), c, layer, cell_->ids[i]);
      }
    }
  }

  // Fills the time columns.
  void summarise() {
    if (cell_->steps.empty()) return;
    const std::vector<double> times = step_medians(*cell_);
    const double p50 = median(times);
    const ConfidenceInterval interval = median_interval(times);
    Row& row = cell_->row;
    row.set("prefill_p50_us", p50);
    row.set("prefill_ci_low_us", interval.low);
    row.set("prefill_ci_high_us", interval.high);
    row.set("prefill_tokens_per_s", static_cast<double>(tokens()) / p50 * 1e6);
    row.set("repetitions", static_cast<int64_t>(times.size()));
    row.set("samples", static_cast<int64_t>(times.size() * cell_->steps.front().size()));
  }

 private:
  int64_t step_tokens() const { return arm_.tiled() ? plan_.seq_len : arm_.chunk; }
  Prompt& prompt(int sequence, int layer) {
    return prompts_[static_cast<size_t>(sequence * plan_.source->shape().layers + layer)];
  }

  void step(Prompt& prompt, size_t chunk, int layer, SequenceId id) {
    Prompt::Chunk& c = prompt.chunks[chunk];
    const StepInput in{.sequence = id,
                       .n = c.n,
                       .q = c.q.data(),
                       .k = c.k.data(),
                       .v = c.v.data(),
                       .out = arm_.tiled() ? c.out.data() : nullptr};
    cell_->cache->step(layer, {&in, 1});
    if (arm_.tiled()) return;
    attend_with_scores({.q = c.q.data(),
                        .out = c.out.data(),
                        .k = prompt.k.data(),
                        .v = prompt.v.data(),
                        .first = c.first,
                        .n = c.n,
                        .tokens = plan_.seq_len},
                       plan_.source->shape(), *cell_->ledger);
  }

  // The cache, the prompt with its outputs, and the scores. In floating point first: the closed form, in
  // whole numbers, could overflow.
  int64_t needed_bytes() const {
    const WorkloadShape& s = plan_.source->shape();
    const double tokens = static_cast<double>(plan_.seq_len) * plan_.batch * s.layers * s.head_dim;
    const double prompt = sizeof(float) * tokens * (2.0 * s.q_heads + 4.0 * s.kv_heads);
    const double scores = score_bytes(s, std::min(arm_.chunk, plan_.seq_len), plan_.seq_len);
    if (prompt + scores > 1e15) return static_cast<int64_t>(std::min(prompt + scores, 1e18));
    const std::vector<int64_t> lengths(static_cast<size_t>(plan_.batch), plan_.seq_len);
    return static_cast<int64_t>(prompt + scores) +
           predicted_bytes(cell_->spec, cache_shape(plan_, plan_.batch), lengths);
  }

  void check() {
    const Errors errors = check_prompts(*cell_, prompts_, arm_.tiled());
    if (arm_.tiled()) {
      errors.write(cell_->row);
    } else {
      cell_->row.set("err_rel_l2", errors.rel_l2);
      cell_->row.set("err_kernel_rel_l2", errors.kernel_rel_l2);
    }
    const std::string failure = errors.failure();
    if (!failure.empty()) return give_up(*cell_, "failed", failure);
    cell_->row.set("status", "ok");
  }

  const BlockPlan& plan_;
  const Arm arm_;
  std::unique_ptr<LiveCell> cell_;
  int64_t memory_bytes_ = 0;
  std::vector<Prompt> prompts_;  // [sequences, layers]
};

// A prompt into a new cache, several times a repetition where it is short.
class PrefillTask : public TimedTask {
 public:
  PrefillTask(PrefillCell& prefill, ResultsFolder& results) : prefill_(prefill), results_(results) {}
  std::string name() const override { return prefill_.cell().key; }
  int iterations() const override {
    return static_cast<int>(std::clamp<int64_t>(kTokens / prefill_.tokens(), 1, 16));
  }
  void begin(int repetition) override {
    repetition_ = repetition;
    times_.clear();
  }
  double run() override {
    prefill_.open();
    Stopwatch watch;
    prefill_.run();
    const double seconds = watch.lap();
    prefill_.close();
    times_.push_back({.append_us = 0.0, .view_us = 0.0, .attend_us = seconds * 1e6});
    return seconds;
  }
  void end() override {
    std::vector<Row> rows;
    for (size_t i = 0; i < times_.size(); ++i) {
      rows.push_back(sample_row(prefill_.cell(), repetition_, i, "prefill"));
      rows.back().set("step_us", times_[i].step_us());
    }
    results_.add_samples(rows);
    prefill_.cell().steps.push_back(times_);
  }

 private:
  PrefillCell& prefill_;
  ResultsFolder& results_;
  static constexpr int64_t kTokens = 2048;  // about as many a repetition

  int repetition_ = 0;
  std::vector<StepTimes> times_;
};

// The variants' arms in their order, the null A/B next to what it is a copy of.
template <class Visit>
void for_each_cell(const BlockPlan& plan, Visit visit) {
  const std::vector<Spec>& variants = plan.experiment->axes.variants;
  for (const Spec& spec : variants) {
    for (const Arm& arm : arms(plan)) {
      visit(spec, arm, false);
      const bool first = spec == variants.front() && arm.name == std::string(kMaterialised);
      if (first && plan.experiment->measure.null_ab) visit(spec, arm, true);
    }
  }
}

using Cells = std::vector<std::unique_ptr<PrefillCell>>;

// False if it was stopped.
bool time_cells(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results, Cells& cells) {
  std::vector<std::unique_ptr<TimedTask>> tasks;
  for (const auto& c : cells) {
    if (runs(c->cell())) tasks.push_back(std::make_unique<PrefillTask>(*c, results));
  }
  if (tasks.empty()) return true;
  try {
    return run_interleaved(tasks, plan.experiment->measure.repetitions, limits.stop);
  } catch (const std::bad_alloc&) {
    for (const auto& c : cells) {
      if (runs(c->cell())) give_up(c->cell(), "out_of_memory", "ran out of memory while it was timed");
      c->cell().steps.clear();
    }
    return true;
  }
}

}  // namespace

std::vector<std::string> prefill_keys(const BlockPlan& plan) {
  std::vector<std::string> keys;
  for_each_cell(plan, [&](const Spec& spec, const Arm& arm, bool null_ab) {
    keys.push_back(plan.key(spec, suffix(arm) + (null_ab ? " null" : "")));
  });
  return keys;
}

std::vector<Row> run_prefill_block(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results) {
  Cells cells;
  for_each_cell(plan, [&](const Spec& spec, const Arm& arm, bool null_ab) {
    cells.push_back(std::make_unique<PrefillCell>(plan, spec, arm, null_ab));
  });
  for (const auto& c : cells) {
    if (limits.stop()) return {};
    if (runs(c->cell())) c->prepare(limits);
  }
  if (!time_cells(plan, limits, results, cells)) return {};
  std::vector<Row> rows;
  PrefillCell* baseline = nullptr;
  for (const auto& c : cells) {
    // Every variant's arms are compared with its own materialised one, its first.
    if (!baseline || !(c->cell().spec == baseline->cell().spec)) baseline = c.get();
    c->summarise();
    compare_cell(c->cell(), baseline->cell(), kMaterialised);
    rows.push_back(c->cell().row);
  }
  return rows;
}

}  // namespace kv
