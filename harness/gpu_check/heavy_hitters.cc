#include "harness/gpu_check/heavy_hitters.h"

#include <cmath>

#include "harness/gpu_check/exact.h"
#include "kernels/math.h"

namespace kv::gpu_check {
namespace {

size_t sized(int64_t count) { return static_cast<size_t>(count) * 4; }

std::vector<float> widened(const std::vector<uint16_t>& halves) {
  std::vector<float> floats;
  for (const uint16_t h : halves) floats.push_back(f16_to_f32(h));
  return floats;
}

}  // namespace

HeavyHitters::HeavyHitters(cuda::Gpu& gpu, const WriteNumbers& write, const HeavyHitterShape& shape,
                           uint64_t seed)
    : gpu_(gpu), write_(write), shape_(shape), seed_(seed) {
  const int64_t heads = shape.heads, budget = shape.budget, queries = heads * shape.group;
  const auto row_bytes = static_cast<int32_t>(2 * shape.head_dim);
  const cuda::SideLayout side{{.format = Format::kF16, .bits = 16}, row_bytes, 0, row_bytes, 0};
  layout_ = {.k = side, .v = side, .head_dim = shape.head_dim, .unit_rows = 1, .page_units = shape.budget};
  for (DeviceBytes* plane : {&k_, &v_})
    *plane = DeviceBytes(gpu, static_cast<size_t>(heads * budget * row_bytes));
  token_ = DeviceBytes(gpu, sized(heads * budget));
  score_ = DeviceBytes(gpu, sized(heads * budget));
  slot_ = DeviceBytes(gpu, sized(heads));
  new_rows_ = DeviceBytes(gpu, sized(2 * heads * shape.head_dim));
  for (DeviceBytes* numbers : {&q_, &out_}) *numbers = DeviceBytes(gpu, sized(queries * shape.head_dim));
  log_sum_ = DeviceBytes(gpu, sized(queries));
  logits_ = DeviceBytes(gpu, sized(queries * budget));
  counters_ = upload(gpu, std::vector<unsigned>(static_cast<size_t>(queries), 0));

  std::vector<cuda::Page> pages;
  std::vector<cuda::AppendJob> jobs;
  std::vector<cuda::ScoredSlots> scored;
  std::vector<float*> weights;
  for (int32_t i = 0; i < shape.heads; ++i) {
    pages.push_back(
        {.k = k_.as<std::byte>() + i * budget * row_bytes, .v = v_.as<std::byte>() + i * budget * row_bytes});
    scored.push_back({token_.as<int32_t>() + i * budget, score_.as<float>() + i * budget});
    weights.push_back(scored.back().score);
  }
  pages_ = upload(gpu, pages);
  for (int32_t i = 0; i < shape.heads; ++i) {
    const float* k = new_rows_.as<float>() + 2 * int64_t{i} * shape.head_dim;
    jobs.push_back({.k = reinterpret_cast<const std::byte*>(k),
                    .v = reinterpret_cast<const std::byte*>(k + shape.head_dim),
                    .pages = pages_.as<cuda::Page>() + i,
                    .slots = slot_.as<int32_t>() + i,
                    .first = 0,
                    .units = 1});
  }
  jobs_ = upload(gpu, jobs);
  scored_slots_ = upload(gpu, scored);
  weights_ = upload(gpu, weights);
}

void HeavyHitters::step() {
  const int64_t numbers = int64_t{shape_.heads} * shape_.head_dim;
  write_(new_rows_.as<float>(), 2 * numbers, seed_, 2 * numbers * count_);
  write_(q_.as<float>(), numbers * shape_.group, seed_ + 1, numbers * shape_.group * count_);
  gpu_.choose_slots(
      {scored_slots_.as<cuda::ScoredSlots>(), slot_.as<int32_t>(), shape_.budget, shape_.recent, count_},
      shape_.heads);
  gpu_.append({layout_, jobs_.as<cuda::AppendJob>(), false}, shape_.heads, 1);
  ++count_;
  attend();
}

// The host knows the number of rows and nothing else of them.
void HeavyHitters::attend() {
  AttentionPlan plan;
  plan.layout = layout_;
  plan.head_dim = shape_.head_dim;
  plan.group = shape_.group;
  for (int32_t i = 0; i < shape_.heads; ++i) {
    const int64_t first_query = int64_t{i} * shape_.group;
    cuda::Problem problem{};  // no tail, for one
    problem.q = q_.as<float>() + first_query * shape_.head_dim;
    problem.out = out_.as<float>() + first_query * shape_.head_dim;
    problem.pages = pages_.as<cuda::Page>() + i;
    problem.rows = problem.visible = rows();
    problem.n = 1;
    problem.logits = logits_.as<float>() + first_query * rows();
    plan.problems.push_back(problem);
  }
  plan.cut(gpu_, AttentionPlan::Cut::kWhole);
  for (DeviceBytes* numbers : {&max_, &sum_}) *numbers = DeviceBytes(gpu_, sized(plan.partials));
  values_ = DeviceBytes(gpu_, sized(plan.partials * shape_.head_dim));
  problems_ = upload(gpu_, plan.problems);
  items_ = upload(gpu_, plan.items[0]);
  const auto* on_gpu = problems_.as<cuda::Problem>();
  plan.run(gpu_, {.problems = on_gpu,
                  .items = {items_.as<cuda::WorkItem>()},
                  .counters = counters_.as<unsigned>(),
                  .partials = {max_.as<float>(), sum_.as<float>(), values_.as<float>()},
                  .log_sum = log_sum_.as<float>()});
  gpu_.add_attention_weights(
      {on_gpu, log_sum_.as<float>(), weights_.as<float*>(), shape_.group, shape_.group}, shape_.heads,
      rows());
}

template <class T>
std::vector<T> HeavyHitters::download(const T* from, size_t count) const {
  std::vector<T> to(count);
  if (count) gpu_.copy(to.data(), from, count * sizeof(T));
  return to;
}

HeavyHitters::Head HeavyHitters::head(int index) const {
  const int64_t first = int64_t{index} * shape_.budget;
  const auto count = static_cast<size_t>(rows());
  return {download(token_.as<int32_t>() + first, count), download(score_.as<float>() + first, count)};
}

// The policy by its definition: a free slot, else the slot of the smallest score that is not recent; the lowest slot wins ties.
int32_t HeavyHitters::slot_for(const Head& head) const {
  if (count_ < shape_.budget) return count_;
  int32_t victim = -1;
  for (int32_t slot = 0; slot < shape_.budget; ++slot) {
    const auto at = static_cast<size_t>(slot);
    if (head.token[at] > count_ - shape_.recent) continue;
    if (victim < 0 || head.score[at] < head.score[static_cast<size_t>(victim)]) victim = slot;
  }
  return victim;
}

std::string HeavyHitters::checked_step() {
  std::vector<Head> before;
  std::vector<int32_t> want;
  for (int i = 0; i < shape_.heads; ++i) {
    before.push_back(head(i));
    want.push_back(slot_for(before.back()));
  }
  step();
  const auto got = download(slot_.as<int32_t>(), want.size());
  for (int i = 0; i < shape_.heads; ++i) {
    const auto at = static_cast<size_t>(i);
    if (got[at] != want[at])
      return "slot " + std::to_string(got[at]) + " instead of " + std::to_string(want[at]);
    before[at].token.resize(static_cast<size_t>(rows()));
    before[at].score.resize(static_cast<size_t>(rows()));
    before[at].token[static_cast<size_t>(want[at])] = count_ - 1;
    before[at].score[static_cast<size_t>(want[at])] = 0.0f;
    const std::string wrong = difference(i, before[at]);
    if (!wrong.empty()) return wrong + " of token " + std::to_string(count_ - 1);
  }
  return "";
}

// `before`: the head before the step, with the new token in its slot.
std::string HeavyHitters::difference(int index, const Head& before) const {
  const int64_t first_query = int64_t{index} * shape_.group * shape_.head_dim;
  const auto numbers = static_cast<size_t>(shape_.group * shape_.head_dim);
  const auto stored = [&](const DeviceBytes& plane) {
    const auto* from = plane.as<uint16_t>() + int64_t{index} * shape_.budget * shape_.head_dim;
    return widened(download(from, static_cast<size_t>(rows()) * static_cast<size_t>(shape_.head_dim)));
  };
  const Exact want = attend_exactly(download(q_.as<float>() + first_query, numbers), stored(k_), stored(v_),
                                    shape_.head_dim);
  if (!(relative_error(download(out_.as<float>() + first_query, numbers), want.out) <= kBound))
    return "output";
  const Head after = head(index);
  if (after.token != before.token) return "tokens";
  for (size_t slot = 0; slot < after.score.size(); ++slot) {
    const double score = double{before.score[slot]} + want.weights[slot];
    if (!(std::fabs(double{after.score[slot]} - score) <= kBound * (score + 1.0))) return "scores";
  }
  return "";
}

}  // namespace kv::gpu_check
