// The decode experiment: steady-state decode steps at a given length, on rows that may lie in the CPU's caches (hot),
// and attention alone on rows outside of them (cold).
#include <algorithm>
#include <iterator>
#include <map>
#include <new>
#include <optional>

#include "harness/experiments/break_even.h"
#include "harness/experiments/cell_plan.h"
#include "harness/experiments/decode/peer_cells.h"
#include "harness/experiments/list.h"
#include "harness/experiments/trial.h"
#include "harness/experiments/written_columns.h"
#include "harness/measure/drafts.h"
#include "harness/measure/gpu_ceiling.h"
#include "harness/measure/roofline_tasks.h"
#include "harness/measure/tier_tasks.h"
#include "harness/measure/time_columns.h"
#include "harness/measure/timed_tasks.h"
#include "harness/results/cell_columns.h"

namespace kv::experiments {
namespace {

void plan_decode(measure::SweepPoint& point) {
  add_variants_and_aa_test(point);
  add_peers(point);
  const config::MeasureConfig& m = point.experiment->measure;
  const bool cold = point.experiment->settings[kColdStepsKey] > 0;
  const cuda::Gpu* const gpu = point.context->gpu();
  const int64_t ceiling = gpu && cold ? measure::ceiling_bytes(*gpu) : 0;
  fit_side_by_side(point, shared_bytes(point, m.steps) + PeerCells::tokens_bytes(point) + ceiling,
                   [&](const measure::PlannedCell& cell) {
                     if (!cell.peer.empty()) return PeerCells::bytes(point, cell.spec);
                     // Base, fork and the buffers that either grows from, the cold copies, and the rows that
                     // attention reads of base and fork.
                     const int64_t once = measure::held_bytes(point, cell.spec);
                     return 3 * once + (cold ? once + measure::beyond_cache_bytes(gpu) : 0) +
                            2 * measure::copied_bytes(point, cell.spec);
                   });
}

int cold_replicas(const measure::Cell& cell) {
  return static_cast<int>(measure::beyond_cache_bytes(cell.ledger->gpu()) /
                          std::max<int64_t>(1, cell.read_bytes)) +
         1;
}

class DecodeTrial : public Trial {
 public:
  DecodeTrial(const measure::SweepPoint& point, const measure::RunControl& control,
              results::ResultsFolder& results)
      : Trial(point, control, results),
        cold_steps_(static_cast<int>(settings()[kColdStepsKey])),
        base_(std::max<int64_t>(0, point.seq_len - point.experiment->measure.steps)) {}

 private:
  void begin(const Group& group) override {
    group_ = group;
    peers_.emplace(point(), base_);
    drafts_.clear();
    roofline_.reset();
    tiers_.reset();
    ceiling_ = nullptr;
  }
  // Verifies, and leaves the cache at the length before the timed steps, with room for the steps' forks.
  void prepare(measure::Cell& cell) override {
    cell.workload = point().source->workload(cell.spec, point().seq_len);
    if (!cell.peer.empty()) return peers_->verify(cell);
    open_and_fill(cell, point().batch);
    cell.ledger->reset_peaks();
    workload::TokenFeed& tokens = feed(cell);
    for (int64_t t = base_; t < point().seq_len; ++t) cell.step(tokens, t, cell.ids, true);
    cell.account(std::vector<int64_t>(cell.ids.size(), point().seq_len));
    if (!cell.check(tokens, point().seq_len)) return;
    open_and_fill(cell, 2 * point().batch);
    if (settings()[kDraftKey] > 0) check_drafts(cell);
  }

  void add_tasks(measure::Cell& cell, measure::TimedTasks& tasks) override {
    if (!cell.peer.empty()) return peers_->add_tasks(cell, tasks, results());
    tasks.push_back(measure::step_task(cell, feed(cell), base_, point().seq_len - base_, results()));
    if (const auto drafts = drafts_.find(&cell); drafts != drafts_.end())
      tasks.push_back(measure::draft_task(cell, *drafts->second, results()));
    if (cold_steps_ == 0) return;
    try {
      tasks.push_back(
          measure::cold_task(cell, feed(cell), point().seq_len, cold_steps_, cold_replicas(cell), results()));
    } catch (const std::bad_alloc&) {
      cell.result[results::kReason] = "no memory for cold copies";
    }
  }
  void add_comparisons(const Group& group, measure::TimedTasks& tasks) override {
    peers_->forget_tokens();
    if (cuda::Gpu* const gpu = point().context->gpu()) {  // the other ceilings are the CPU's
      if (cold_steps_ > 0) ceiling_ = measure::added(std::make_unique<measure::GpuCeilingTask>(*gpu), tasks);
      return;
    }
    std::vector<measure::Cell*> own;
    std::ranges::copy_if(group, std::back_inserter(own),
                         [](measure::Cell* cell) { return cell->peer.empty(); });
    roofline_.emplace(own, cold_steps_ > 0, tasks);
    tiers_.emplace(own, tasks);
  }
  void summarise(measure::Cell& cell) override {
    if (!cell.peer.empty()) return PeerCells::summarise(cell, group_);
    cell.summarise();
    if (const auto drafts = drafts_.find(&cell); drafts != drafts_.end())
      measure::summarise_drafts(cell, *drafts->second);
    if (ceiling_) ceiling_->write(cell);
    if (!roofline_) return;
    roofline_->write(cell);
    tiers_->write(cell);
  }
  void compare(const measure::Cells& cells) override { compare_with_first(cells); }

  void open_and_fill(measure::Cell& cell, int sequences) const {
    measure::open_cache(cell, point(), sequences);
    fill(cell, point(), base_);
    cell.prompt = base_;
  }

  // The feed still holds the outputs of the last verified step.
  void check_drafts(measure::Cell& cell) {
    const int64_t end = point().seq_len - 1;
    auto drafts =
        std::make_unique<measure::DraftSteps>(*cell.workload, point().batch,
                                              measure::DraftSettings{.drafts = settings()[kDraftKey],
                                                                     .accept = settings()[kAcceptKey],
                                                                     .seed = point().config->seed,
                                                                     .first = base_,
                                                                     .end = end});
    cell.result[measure::kDraftTokens] = settings()[kDraftKey];
    cell.result[measure::kDraftAccept] = settings()[kAcceptKey];
    cell.result[measure::kDraftRefused] = drafts->count() == 0
                                              ? "a sequence has fewer tokens than a step"
                                              : measure::check_drafts(cell, feed(cell), *drafts, end);
    if (cell.result[measure::kDraftRefused].empty()) drafts_[&cell] = std::move(drafts);
  }

  workload::TokenFeed& feed(const measure::Cell& cell) {
    return Trial::feed(cell, base_, point().seq_len - base_);
  }

  const int cold_steps_;
  const int64_t base_;  // tokens before the timed steps
  Group group_;
  std::optional<PeerCells> peers_;
  std::map<const measure::Cell*, std::unique_ptr<measure::DraftSteps>> drafts_;
  std::optional<measure::RooflineTasks> roofline_;
  std::optional<measure::TierTasks> tiers_;
  const measure::GpuCeilingTask* ceiling_ = nullptr;  // among the group's tasks, on a GPU
};

bool is_timed_cold(const config::Config&, const config::ExperimentConfig& sweep) {
  return sweep.settings[kColdStepsKey] > 0;
}

bool verifies_drafts(const config::Config&, const config::ExperimentConfig& sweep) {
  return sweep.settings[kDraftKey] > 0;
}

bool has_peers(const config::Config&, const config::ExperimentConfig& sweep) {
  return !sweep.settings[kPeersKey].empty();
}

}  // namespace

constexpr const config::AnyKey* kDecodeKeys[] = {&kColdStepsKey, &kDraftKey, &kAcceptKey, &kPeerTimeoutKey,
                                                 &kPeersKey};

void check_decode_keys(const config::Section& own, const config::ExperimentConfig& sweep) {
  const int64_t draft = sweep.settings[kDraftKey];
  if (draft + 1 >= sweep.measure.steps && draft > 0)
    own.fail("draft", "needs more steps than " + std::to_string(draft + 1) +
                          ", the tokens of a step that verifies " + std::to_string(draft));
}

constexpr auto kDecodeGroups = joined(
    kOfCells, kOfKept, kOfSteps, ColumnGroup{measure::kColdColumns, is_timed_cold},
    ColumnGroup{measure::kGpuColumns, runs_on_gpu}, ColumnGroup{measure::kDraftColumns, verifies_drafts},
    measure::kRooflineColumns, ColumnGroup{measure::kColdRooflineColumns, is_timed_cold},
    ColumnGroup{measure::kTierTimeColumns, has_tiers}, ColumnGroup{measure::kPeerColumns, has_peers},
    ColumnGroup{measure::kColdRatioColumns, is_timed_cold}, kOfOutputs, kOfChoices, kOfComparisons);
constexpr const results::Table* kDecodeTables[] = {&measure::kSamples};

constinit const Experiment kDecode{.info = {.name = "decode",
                                            .help = "steady-state decode at given lengths, hot and cold",
                                            .keys = kDecodeKeys,
                                            .check = check_decode_keys,
                                            .takes_latent_rows = true},
                                   .fixed_tokens = 4000.0,
                                   .first_step =
                                       [](const measure::SweepPoint& point) {
                                         return std::max<int64_t>(
                                             0, point.seq_len - point.experiment->measure.steps);
                                       },
                                   .tables_every_step = true,
                                   .columns = kDecodeGroups,
                                   .tables = kDecodeTables,
                                   .sentence = break_even,
                                   .has_steady_steps = true,
                                   .plan = plan_decode,
                                   .run = measured<DecodeTrial>};

}  // namespace kv::experiments
