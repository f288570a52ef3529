#include "harness/measure/drafts.h"

#include <algorithm>
#include <stdexcept>

#include "harness/math/medians.h"
#include "harness/math/random.h"
#include "harness/measure/time_columns.h"

namespace kv::measure {
namespace {

constexpr uint64_t kAccept = 0x616363657074;  // "accept"

}  // namespace

DraftSteps::DraftSteps(const workload::Workload& workload, int sequences, const DraftSettings& settings)
    : settings_(settings),
      shape_(workload.shape()),
      sequences_(sequences),
      tokens_(static_cast<size_t>(sequences), settings.first) {
  const int64_t n = settings.drafts + 1;
  uint64_t draws = 0;
  while (std::all_of(tokens_.begin(), tokens_.end(), [&](int64_t t) { return t + n <= settings.end; })) {
    Step& step = steps_.emplace_back();
    for (int i = 0; i < sequences; ++i) {
      int64_t stays = 1;
      const uint64_t key = math::random::key({settings.seed, kAccept});
      while (stays < n && math::random::uniform(key, draws++) < settings.accept) ++stays;
      int64_t& tokens = tokens_[static_cast<size_t>(i)];
      for (int layer = 0; layer < shape_.layers; ++layer)
        fill(workload, stays, tokens, i, layer, step.rows.emplace_back());
      tokens += stays;
      stays_ += stays;
      step.keeps.push_back(tokens);
    }
  }
  out_.resize(static_cast<size_t>(sequences * shape_.q_heads * n * shape_.head_dim));
}

double DraftSteps::mean_stays() const {
  return static_cast<double>(stays_) / static_cast<double>(std::ssize(steps_) * sequences_);
}

// Refused tokens differ from the rows that finally stand there: their signs are flipped.
void DraftSteps::fill(const workload::Workload& workload, int64_t stays, int64_t first, int sequence,
                      int layer, std::vector<float>& rows) const {
  const int64_t n = settings_.drafts + 1, d = shape_.head_dim;
  const int64_t q = shape_.q_heads * n * d, kv = shape_.kv_heads * n * d;
  rows.resize(static_cast<size_t>(q + 2 * kv));
  float* k = rows.data() + q;
  workload.read(sequence, layer, first, n, rows.data(), k, k + kv);
  for (int64_t head = 0; head < 2 * shape_.kv_heads; ++head) {
    float* wrong = k + (head * n + stays) * d;
    std::transform(wrong, wrong + (n - stays) * d, wrong, std::negate<>());
  }
}

std::vector<StepInput> DraftSteps::inputs(const Step& step, int layer, std::span<const SequenceId> ids) {
  const int64_t n = settings_.drafts + 1, d = shape_.head_dim;
  std::vector<StepInput> all;
  for (int i = 0; i < sequences_; ++i) {
    const float* q = step.rows[static_cast<size_t>(i * shape_.layers + layer)].data();
    const float* k = q + shape_.q_heads * n * d;
    all.push_back({.sequence = ids[static_cast<size_t>(i)],
                   .n = n,
                   .q = q,
                   .k = k,
                   .v = k + shape_.kv_heads * n * d,
                   .out = out_.data() + i * shape_.q_heads * n * d});
  }
  return all;
}

double DraftSteps::run(Cache& cache, size_t number, std::span<const SequenceId> ids) {
  const Step& step = steps_[number];
  double seconds = 0.0;
  for (int layer = 0; layer < shape_.layers; ++layer) {
    const std::vector<StepInput> of_layer = inputs(step, layer, ids);
    Stopwatch watch;
    cache.step(layer, of_layer);
    seconds += watch.lap();
  }
  Stopwatch watch;
  for (int i = 0; i < sequences_; ++i)
    cache.truncate(ids[static_cast<size_t>(i)], step.keeps[static_cast<size_t>(i)]);
  return seconds + watch.lap();
}

std::string check_drafts(Cell& cell, workload::TokenFeed& feed, DraftSteps& drafts, int64_t end) {
  const workload::WorkloadShape& shape = cell.workload->shape();
  const auto values = static_cast<size_t>(shape.q_heads * shape.head_dim);
  std::vector<std::vector<float>> wanted;
  for (int layer = 0; layer < shape.layers; ++layer)
    for (int i = 0; i < feed.sequences(); ++i)
      wanted.emplace_back(feed.out(layer, i), feed.out(layer, i) + values);
  std::vector<SequenceId> forks = forks_of(cell);
  try {
    for (size_t step = 0; step < drafts.count(); ++step) drafts.run(*cell.cache, step, forks);
  } catch (const std::invalid_argument& e) {
    release_all(cell, forks);
    return e.what();
  }
  for (int i = 0; i < feed.sequences(); ++i)
    workload::prefill(*cell.cache, *cell.workload, {&forks[static_cast<size_t>(i)], 1},
                      drafts.tokens_after(i), end, i);
  cell.step(feed, end, forks, true);
  auto want = wanted.begin();
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int i = 0; i < feed.sequences(); ++i, ++want)
      if (!std::equal(want->begin(), want->end(), feed.out(layer, i)))
        throw std::logic_error("drafts that were truncated have left something behind");
  }
  release_all(cell, forks);
  return "";
}

std::unique_ptr<TimedTask> draft_task(Cell& cell, DraftSteps& drafts, results::ResultsFolder& results) {
  struct Repetition {
    std::vector<SequenceId> forks;
    size_t next;
  };
  const auto now = std::make_shared<Repetition>();
  const auto step = [=, &cell, &drafts] {
    return StepTimes{.attend_us = drafts.run(*cell.cache, now->next++, now->forks) * 1e6};
  };
  return sampled(cell, drafts.samples,
                 {.kind = "draft",
                  .steps = static_cast<int64_t>(drafts.count()),
                  .step = step,
                  .begin =
                      [=, &cell] {
                        *now = {forks_of(cell), 0};
                      },
                  .end = [=, &cell](std::span<const StepTimes>) { release_all(cell, now->forks); }},
                 results);
}

void summarise_drafts(Cell& cell, const DraftSteps& drafts) {
  if (drafts.samples.empty() || cell.steps.empty()) return;
  results::Row& row = cell.result;
  const std::vector<double> steps = repetition_medians(drafts.samples);
  const math::ConfidenceInterval interval = math::median_interval(steps);
  row.set(kDraftStepP50Us, math::median(steps), interval);
  row[kDraftStaysMean] = drafts.mean_stays();
  std::vector<double> tokens;
  for (const double step : steps) tokens.push_back(step / drafts.mean_stays());
  const math::Ratio ratio = math::ratio_of_medians(tokens, repetition_medians(cell.steps));
  row.set(kDraftRatioP50, ratio.value, ratio.interval());
}

}  // namespace kv::measure
