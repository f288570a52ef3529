#include "harness/measure/drafts.h"

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "harness/math/medians.h"
#include "harness/math/random.h"
#include "harness/measure/draft_columns.h"
#include "harness/measure/sample_columns.h"

namespace kv::measure {
namespace {

constexpr uint64_t kAccept = 0x616363657074;  // "accept"

// Forks of a cell's sequences, until the end of the scope.
class Forks {
 public:
  explicit Forks(Cell& cell) : cache_(*cell.cache) {
    for (const SequenceId id : cell.ids) ids_.push_back(cache_.fork(id));
  }
  Forks(const Forks&) = delete;
  Forks& operator=(const Forks&) = delete;
  ~Forks() {
    for (const SequenceId id : ids_) cache_.release(id);
  }
  std::span<const SequenceId> ids() const { return ids_; }

 private:
  Cache& cache_;
  std::vector<SequenceId> ids_;
};

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
  const Forks forks(cell);
  try {
    for (size_t step = 0; step < drafts.count(); ++step) drafts.run(*cell.cache, step, forks.ids());
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  for (int i = 0; i < feed.sequences(); ++i)
    workload::prefill(*cell.cache, *cell.workload, forks.ids().subspan(static_cast<size_t>(i), 1),
                      drafts.tokens_after(i), end, i);
  cell.step(feed, end, forks.ids(), true);
  auto want = wanted.begin();
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int i = 0; i < feed.sequences(); ++i, ++want)
      if (!std::equal(want->begin(), want->end(), feed.out(layer, i)))
        throw std::logic_error("drafts that were truncated have left something behind");
  }
  return "";
}

namespace {

class DraftTask : public CellTask {
 public:
  DraftTask(Cell& cell, DraftSteps& drafts, results::ResultsFolder& results)
      : CellTask(cell), drafts_(drafts), results_(results) {}

  std::string name() const override { return cell_.key + " draft"; }
  int iterations() const override { return static_cast<int>(drafts_.count()); }
  void begin(int repetition) override {
    repetition_ = repetition;
    times_.clear();
    forks_ = std::make_unique<Forks>(cell_);
  }
  double run() override {
    const double seconds = drafts_.run(*cell_.cache, times_.size(), forks_->ids());
    times_.push_back(seconds * 1e6);
    return seconds;
  }
  void end() override {
    forks_.reset();
    std::vector<results::Row> rows;
    for (size_t i = 0; i < times_.size(); ++i) {
      results::Row row = sample_of(cell_, repetition_, i, "draft");
      row[kStepUs] = times_[i];
      rows.push_back(std::move(row));
    }
    results_.add(kSamples, rows);
    cell_.draft_us.push_back(times_);
  }
  void handle_exception() override {
    forks_.reset();
    CellTask::handle_exception();
  }

 private:
  DraftSteps& drafts_;
  results::ResultsFolder& results_;
  std::unique_ptr<Forks> forks_;
  std::vector<double> times_;
  int repetition_ = 0;
};

}  // namespace

std::unique_ptr<TimedTask> draft_task(Cell& cell, DraftSteps& drafts, results::ResultsFolder& results) {
  return std::make_unique<DraftTask>(cell, drafts, results);
}

void summarise_drafts(Cell& cell, const DraftSteps& drafts) {
  if (cell.draft_us.empty() || cell.steps.empty()) return;
  results::Row& row = cell.result;
  const std::vector<double> steps = math::repetition_medians(cell.draft_us);
  const math::ConfidenceInterval interval = math::median_interval(steps);
  row.set(kDraftStepP50Us, math::median(steps), interval);
  row[kDraftStaysMean] = drafts.mean_stays();
  std::vector<double> tokens;
  for (const double step : steps) tokens.push_back(step / drafts.mean_stays());
  const math::Ratio ratio = math::ratio_of_medians(tokens, step_medians(cell));
  row.set(kDraftRatioP50, ratio.value, ratio.interval());
}

}  // namespace kv::measure
