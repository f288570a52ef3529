// The speculate experiment: how many tokens that a cheap cache proposes are those of the full one, and what the drafts save.
// The same model reads both caches, so that nothing but the cache refuses a token. Every text must be the one without drafts.
#include <map>
#include <stdexcept>

#include "harness/experiments/cell_plan.h"
#include "harness/experiments/list.h"
#include "harness/experiments/reading_keys.h"
#include "harness/experiments/reading_run.h"
#include "harness/experiments/speculate/drafting.h"
#include "harness/experiments/trial.h"
#include "harness/experiments/written_columns.h"
#include "harness/math/clusters.h"
#include "harness/math/medians.h"
#include "harness/model/cached_model.h"
#include "harness/results/cell_columns.h"
#include "harness/results/estimate.h"
#include "harness/results/table.h"
#include "variants/model_cache/layer_specs.h"

namespace kv::experiments {
namespace {

constexpr auto kProposedTokens =
    results::IntegerColumn{"proposed_tokens", "tokens",
                           "speculate: tokens that the draft cache proposes a step"}
        .axis("drafts of {} tokens")
        .arm()
        .swept_by("draft_tokens");
constexpr results::TextColumn kTarget{"target", "", "speculate: cache that verifies the proposed tokens"};
constexpr results::IntegerColumn kSpeculatedTokens{"speculated_tokens", "tokens",
                                                   "speculate: tokens generated after each prompt"};
constexpr auto kAcceptance = results::estimate<"acceptance">(
    "1", "speculate: accepted / proposed tokens, mean over the steps that verify",
    "95 % interval (bootstrap over texts)");
constexpr results::NumberColumn kTokensAStep{
    "tokens_a_step", "tokens", "speculate: generated tokens / steps of the target cache; 1 without drafts"};
constexpr auto kSpeedup = results::estimate<"speedup">(
    "1",
    "speculate: time of the same tokens with the target cache alone / with drafts, median over the texts");
constexpr results::IntegerColumn kRoundedTexts{
    "rounded_texts", "",
    "speculate: texts that leave the one without drafts at a token whose margin is within rounding"};
constexpr auto kSpeculateColumns = results::column_list(kTarget, kProposedTokens, kSpeculatedTokens,
                                                        kAcceptance, kTokensAStep, kSpeedup, kRoundedTexts);

const config::Key<std::vector<int64_t>> kDraftTokensKey{
    "draft_tokens", config::SharedTable::kOwn, {4}, config::token_list(), "tokens that a draft proposes"};
const config::Key<std::string> kTargetKey{
    "target", config::SharedTable::kOwn, "contiguous/f16",
    config::text([](const std::string& spec) { parse_layer_specs(spec); }), "cache that verifies drafts"};

LayerSpecs target_of(const measure::SweepPoint& point) {
  return parse_layer_specs(settings_of(point)[kTargetKey]);
}

void check_speculate(const measure::SweepPoint& point) {
  check_windows(point);
  if (settings_of(point)[kPromptKey] < 1)
    throw std::invalid_argument(config_prefix(point) + "needs a prompt: prompt = 64");
  for (const int64_t tokens : settings_of(point)[kDraftTokensKey]) {
    if (tokens < 1 || tokens > 64)
      throw std::invalid_argument(config_prefix(point) + "draft_tokens has " + std::to_string(tokens) +
                                  "; it takes numbers from 1 to 64");
  }
}

// The prompt is one step; a first token alone is a step like the others.
int64_t first_speculate_step(const measure::SweepPoint& point) {
  const int64_t prompt = settings_of(point)[kPromptKey];
  return prompt > 1 ? prompt : 0;
}

// A cell a draft cache and length of drafts.
void plan_speculate(measure::SweepPoint& point) {
  const std::vector<int64_t>& lengths = settings_of(point)[kDraftTokensKey];
  for (const LayerSpecs& spec : point.experiment->axes.variants) {
    for (const int64_t tokens : lengths)
      add_cell(point, spec, "drafts of " + std::to_string(tokens)).columns[kProposedTokens] = tokens;
  }
  // One draft cache and one target are alive, of a sequence each; growing holds the old and the new buffer.
  fit_alone(point, [&](const measure::PlannedCell& cell) {
    return 2 * (measure::held_bytes(point, cell.spec) + measure::held_bytes(point, target_of(point)));
  });
}

// A cell's texts so far.
struct Drafting {
  int64_t tokens = 0, steps = 0, rounded = 0;
  std::vector<double> shares, speedups;
  std::vector<int64_t> text_of_share;
};

class SpeculateTrial : public Trial {
 public:
  SpeculateTrial(const measure::SweepPoint& point, const measure::RunControl& control,
                 results::ResultsFolder& results)
      : Trial(point, control, results),
        prompt_(settings()[kPromptKey]),
        progress_(control, static_cast<double>(point.batch) * static_cast<double>(1 + point.cells.size())) {}

 private:
  auto with_target(const auto& work) const {
    memory::Ledger ledger(point().cache_bytes);
    const auto cache = build_cache(target_of(point()), measure::cache_shape(point(), 1), ledger);
    TextReader target(*point().source->model(), *cache);
    return work(target);
  }

  // Text by text, so that the plain one is read once.
  bool prepare_all(const Group& group) override {
    const measure::Passages windows = text_windows(point(), point().seq_len);
    for (int text = 0; text < point().batch; ++text) {
      std::vector<int> prompt;
      for (int64_t i = 0; i < prompt_; ++i) prompt.push_back(windows.id(text, i));
      const PlainText plain = with_target(
          [&](TextReader& target) { return continue_plainly(target, prompt, point().seq_len - prompt_); });
      progress_.add(1.0);
      for (measure::Cell* cell : group) {
        if (control().stop()) return false;
        if (measure::runs(*cell)) measure::attempt(*cell, [&] { draft(*cell, text, prompt, plain); });
        progress_.add(1.0);
      }
    }
    return true;
  }

  void draft(measure::Cell& cell, int text, std::span<const int> prompt, const PlainText& plain) {
    Drafting& one = drafts_[&cell];
    measure::open_cache(cell, point(), 1);
    TextReader draft(*point().source->model(), *cell.cache);
    const DraftedText drafted = with_target([&](TextReader& target) {
      return continue_with_drafts(draft, target, prompt, *cell.result[kProposedTokens], plain);
    });
    if (!drafted.failure.empty())
      return measure::mark(cell, results::Status::kFailed,
                           "text " + std::to_string(text) + " " + drafted.failure);
    one.tokens += std::ssize(drafted.ids) - 1;  // the prompt's step chose the first
    one.steps += drafted.steps;
    one.rounded += drafted.rounded;
    one.speedups.push_back(plain.seconds / drafted.seconds);
    one.shares.insert(one.shares.end(), drafted.shares.begin(), drafted.shares.end());
    one.text_of_share.resize(one.shares.size(), text);
    if (text + 1 < point().batch) return;
    // Drafts end anywhere; the bytes of a whole text follow from the config.
    std::vector<int> whole(prompt.begin(), prompt.end());
    whole.insert(whole.end(), drafted.ids.begin(), drafted.ids.end());
    draft.read(whole);
    cell.ids = {draft.sequence()};
    cell.prompt = first_speculate_step(point());
    cell.account(std::vector<int64_t>{draft.tokens()});
    cell.cache.reset();
  }

  void summarise(measure::Cell& cell) override {
    const Drafting& one = drafts_.at(&cell);
    results::Row& row = cell.result;
    row[kTarget] = target_of(point()).print();
    row[kSpeculatedTokens] = point().seq_len - prompt_;
    double sum = 0.0;
    for (const double share : one.shares) sum += share;
    row.set(kAcceptance, sum / static_cast<double>(one.shares.size()),
            math::Clusters(one.text_of_share).mean_interval(one.shares));
    row[kTokensAStep] = static_cast<double>(one.tokens) / static_cast<double>(one.steps);
    row.set(kSpeedup, math::median(one.speedups), math::median_interval(one.speedups));
    row[kRoundedTexts] = one.rounded;
    row[results::kStatus] = results::Status::kOk;
  }

  const int64_t prompt_;
  measure::PointProgress progress_;
  std::map<const measure::Cell*, Drafting> drafts_;
};

std::string acceptance_text(const results::Row& row) { return with_interval(row, kAcceptance, "%.3g"); }

std::string most_accepted(std::span<const results::Row* const> cells) {
  const results::Row *most = nullptr, *least = nullptr;
  for (const results::Row* cell : cells) {
    if (!(*cell)[kAcceptance]) continue;
    if (!most || *(*cell)[kAcceptance] > *(*most)[kAcceptance]) most = cell;
    if (!least || *(*cell)[kAcceptance] < *(*least)[kAcceptance]) least = cell;
  }
  if (!most) return "";
  const auto said = [](const results::Row& row) { return acceptance_text(row) + " with " + row_name(row); };
  return "Accepted: " + said(*most) + (most == least ? "." : ", " + said(*least) + ".");
}

}  // namespace

constexpr const config::AnyKey* kSpeculateKeys[] = {&kPromptKey, &kDraftTokensKey, &kTargetKey};
constexpr auto kSpeculateGroups = joined(kOfCells, kOfModelRuns, kSpeculateColumns);

const TableColumn kSpeculateTable[] = {kTokenBytesText,
                                       {"accepted (95 %)", acceptance_text},
                                       {"tokens per step", shown<kTokensAStep, "%.2f">},
                                       {"speed-up (95 %)", estimated<kSpeedup, "%.2f">},
                                       {"rounded", shown<kRoundedTexts, "%g">}};

constinit const Experiment kSpeculate{
    .info = {.name = "speculate",
             .help = "tokens drafted with a cheap cache and verified with the full one: acceptance, speed-up",
             .keys = kSpeculateKeys,
             .needs_model = true},
    .first_step = first_speculate_step,
    .one_at_a_time = true,
    .check = check_speculate,
    .columns = kSpeculateGroups,
    .table = kSpeculateTable,
    .sentence = most_accepted,
    .plan = plan_speculate,
    .run = measured<SpeculateTrial>};

}  // namespace kv::experiments
