#include "harness/experiments/model_steps.h"

#include <algorithm>

#include "harness/math/random.h"
#include "harness/model/step_parts.h"
#include "variants/cache/spec.h"

namespace kv::experiments {
namespace {

constexpr int64_t kPromptChunk = 512;  // tokens that a model reads at a time

class StepTask : public measure::CellTask {
 public:
  StepTask(measure::Cell& cell, ModelSteps& model, int steps, results::ResultsFolder& results)
      : CellTask(cell), model_(model), steps_(steps), results_(results) {}
  std::string name() const override { return cell_.key; }
  int iterations() const override { return steps_; }
  void begin(int repetition) override {
    repetition_ = repetition;
    times_.clear();
  }
  double run() override {
    times_.push_back(model_.step());
    return times_.back().step_us() * 1e-6;
  }
  void end() override {
    std::vector<results::SampleResult> rows;
    for (size_t i = 0; i < times_.size(); ++i) {
      results::SampleResult& row = rows.emplace_back(measure::sample_of(cell_, repetition_, i, "step"));
      row.append_us = times_[i].append_us;
      row.view_us = times_[i].view_us;
      row.attend_us = times_[i].attend_us;
      row.projections_us = times_[i].projections_us;
      row.rest_us = times_[i].rest_us;
      row.step_us = times_[i].step_us();
    }
    results_.add_samples(rows);
    cell_.steps.push_back(times_);
  }

 private:
  ModelSteps& model_;
  const int steps_;
  results::ResultsFolder& results_;
  std::vector<measure::StepTimes> times_;
  int repetition_ = 0;
};

class PromptTask : public measure::CellTask {
 public:
  PromptTask(measure::Cell& cell, const ModelSteps& model, std::vector<double>& prompt_us,
             results::ResultsFolder& results)
      : CellTask(cell), model_(model), prompt_us_(prompt_us), results_(results) {}
  std::string name() const override { return cell_.key + " prompt"; }
  int iterations() const override { return 1; }
  void begin(int repetition) override { repetition_ = repetition; }
  double run() override {
    const double seconds = model_.read_prompt();
    prompt_us_.push_back(seconds * 1e6);
    return seconds;
  }
  void end() override {
    results::SampleResult row = measure::sample_of(cell_, repetition_, 0, "prefill");
    row.step_us = prompt_us_.back();
    results_.add_samples({&row, 1});
  }

 private:
  const ModelSteps& model_;
  std::vector<double>& prompt_us_;
  results::ResultsFolder& results_;
  int repetition_ = 0;
};

bool cuts_prompt(const LayerSpecs& specs) {
  return specs.any([](const Spec& spec) { return retention_of(spec).cuts_prompt; });
}

}  // namespace

int64_t context_tokens(const measure::SweepPoint& point) {
  const config::MeasureConfig& m = point.experiment->measure;
  return point.seq_len - int64_t{m.steps} * m.repetitions - 1;
}

ModelSteps::ModelSteps(measure::Cell& cell, const measure::SweepPoint& point, workload::ContextRows& rows)
    : cell_(cell), point_(point) {
  decoder_.emplace(new_decoder());
  cell.ids.assign(decoder_->sequences().begin(), decoder_->sequences().end());
  decoder_->observe(
      [&](int layer, std::span<const StepInput> inputs) { rows.record(layer, inputs.front()); });
  const int64_t context = context_tokens(point);
  if (point.experiment->measure.context == "prefill") {
    read_context(*decoder_);
  } else {
    // In few steps, since there are placements that copy all at each.
    workload::prefill(*cell.cache, rows, cell.ids, 0, context, 0, std::max<int64_t>(1024, context / 8));
    decoder_->follow(context);
  }
  cell.prompt = context;
  cell.ledger->reset_peaks();
  const CacheShape& shape = cell.cache->shape();
  decoder_->observe([&](int layer, std::span<const StepInput> inputs) {
    rows.record(layer, inputs.front());
    const auto values = static_cast<size_t>(shape.q_heads * shape.head_dim);
    answers_.push_back(
        {{inputs.front().q, inputs.front().q + values}, {inputs.front().out, inputs.front().out + values}});
  });
  step();
  decoder_->observe({});
}

model::CachedModel ModelSteps::new_decoder() const {
  // Any position: how long a step takes does not depend on what a model was trained for.
  return {*point_.source->model(), *cell_.cache, point_.batch, model::Rotary::kBeyond};
}

// Sequence i reads the text from token i * seq_len on, from its start again where it ends; a model with random weights
// reads random tokens.
std::vector<int> ModelSteps::ids(int64_t first, int64_t n) const {
  const std::span<const int> text = point_.source->text();
  const auto vocabulary = static_cast<uint64_t>(point_.source->model()->config().vocab_size);
  std::vector<int> ids;
  for (int64_t i = 0; i < point_.batch; ++i) {
    for (int64_t t = first; t < first + n; ++t) {
      const auto at = static_cast<uint64_t>(i * point_.seq_len + t);
      ids.push_back(text.empty() ? static_cast<int>(math::random::below(point_.config->seed, at, vocabulary))
                                 : text[at % text.size()]);
    }
  }
  return ids;
}

void ModelSteps::read_context(model::CachedModel& decoder) const {
  const int64_t context = context_tokens(point_), chunk = cuts_prompt(cell_.spec) ? context : kPromptChunk;
  for (int64_t first = 0; first < context; first += chunk) {
    const int64_t n = std::min(chunk, context - first);
    decoder.prompt(ids(first, n), n);
  }
}

measure::StepTimes ModelSteps::step() {
  const std::vector<int> next = ids(decoder_->tokens(), 1);
  const model::StepParts parts;
  measure::Stopwatch watch;
  decoder_->step(next, 1);
  const double us = watch.lap() * 1e6;
  weight_bytes_ = parts.weight_bytes();
  multiply_adds_ = parts.multiply_adds();
  const auto us_of = [&](model::Part part) { return parts.seconds(part) * 1e6; };
  measure::StepTimes times{.append_us = us_of(model::Part::kAppend),
                           .view_us = us_of(model::Part::kView),
                           .attend_us = us_of(model::Part::kAttend),
                           .projections_us = us_of(model::Part::kProjections)};
  times.rest_us = us - times.step_us();
  return times;
}

verify::Errors ModelSteps::errors(const workload::ContextRows& rows) const {
  std::vector<verify::Output> outputs;
  for (size_t layer = 0; layer < answers_.size(); ++layer) {
    outputs.push_back({.sequence = cell_.ids.front(),
                       .workload_sequence = 0,
                       .layer = static_cast<int>(layer),
                       .q = answers_[layer].q.data(),
                       .out = answers_[layer].out.data()});
  }
  return verify::verify(*cell_.cache, rows, tokens(), outputs);
}

double ModelSteps::read_prompt() const {
  model::CachedModel fresh = new_decoder();
  measure::Stopwatch watch;
  read_context(fresh);
  const double seconds = watch.lap();
  for (const SequenceId id : fresh.sequences()) cell_.cache->release(id);
  return seconds;
}

std::unique_ptr<measure::TimedTask> model_step_task(measure::Cell& cell, ModelSteps& model, int steps,
                                                    results::ResultsFolder& results) {
  return std::make_unique<StepTask>(cell, model, steps, results);
}

std::unique_ptr<measure::TimedTask> prompt_task(measure::Cell& cell, const ModelSteps& model,
                                                std::vector<double>& prompt_us,
                                                results::ResultsFolder& results) {
  return std::make_unique<PromptTask>(cell, model, prompt_us, results);
}

}  // namespace kv::experiments
