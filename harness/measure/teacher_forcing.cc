#include "harness/measure/teacher_forcing.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <stdexcept>

#include "harness/measure/timing.h"
#include "harness/memory/ledger.h"
#include "variants/cache/cache.h"
#include "variants/cache/prefill.h"
#include "variants/cache/spec.h"
#include "variants/storage/residual_buffer.h"

namespace kv::measure {
namespace {

// One step of all readings: tokens [first, first + n) of every sequence.
struct Step {
  const Passages& passages;
  int64_t first, n;
  std::vector<int> ids;                   // [sequences, n]
  std::vector<Distribution> reference{};  // [sequences, n]

  std::vector<float> logits(Reading& reading) const {
    Stopwatch watch;
    std::vector<float> all = reading.decoder.step(ids, n);
    reading.seconds += watch.lap();
    return all;
  }

  void read_reference(Reading& reading) {
    const std::vector<float> all = logits(reading);
    const size_t vocab = all.size() / ids.size();
    for (size_t at = 0; at < ids.size(); ++at)
      reference.push_back(distribution_of(std::span(all).subspan(at * vocab, vocab)));
    for (size_t at = 0; at < ids.size(); ++at) record(reading, at, reference[at]);
  }

  void read(Reading& reading) const {
    const std::vector<float> all = logits(reading);
    const size_t vocab = all.size() / ids.size();
    for (size_t at = 0; at < ids.size(); ++at)
      record(reading, at, distribution_of(std::span(all).subspan(at * vocab, vocab)));
  }

  void record(Reading& reading, size_t at, const Distribution& got) const {
    const auto sequence = static_cast<int64_t>(at) / n, position = first + static_cast<int64_t>(at) % n;
    reading.predictions[static_cast<size_t>(sequence * passages.length + position)] =
        compare_predictions(got, reference[at], passages.id(static_cast<int>(sequence), position + 1));
  }
};

void read_all(const Step& step, std::span<Reading* const> readings) {
#pragma omp parallel for schedule(dynamic, 1)
  for (size_t i = 0; i < readings.size(); ++i) {
    if (readings[i]->failure) continue;
    try {
      step.read(*readings[i]);
    } catch (...) {
      readings[i]->failure = std::current_exception();
    }
  }
}

}  // namespace

std::vector<int> tokens_of_step(const Passages& passages, int64_t first, int64_t n) {
  std::vector<int> ids;
  for (int s = 0; s < passages.sequences; ++s) {
    for (int64_t i = 0; i < n; ++i) ids.push_back(passages.id(s, first + i));
  }
  return ids;
}

bool agrees_in_chunks(const LayerSpecs& specs) {
  return !specs.any([](const Spec& spec) {
    return retention_of(spec).cuts_prompt || prefills_full(spec) ||
           ResidualBuffer::needed(codec_of(spec).make(spec.codec));
  });
}

bool read_together(const Passages& passages, const StepSchedule& schedule, Reading& reference,
                   std::span<Reading* const> readings, const std::function<bool(int64_t tokens)>& go_on) {
  for (int64_t first = 0, n; first < passages.length; first += n) {
    n = std::min(schedule.tokens(first), passages.length - first);
    Step step{.passages = passages, .first = first, .n = n, .ids = tokens_of_step(passages, first, n)};
    step.read_reference(reference);
    read_all(step, readings);
    if (!go_on(n)) return false;
  }
  return true;
}

std::vector<std::vector<Prediction>> read_specs(const model::Model& model, const Passages& passages,
                                                const StepSchedule& schedule,
                                                std::span<const LayerSpecs> specs, cuda::Gpu* gpu) {
  const ModelShape shape = cache_shape(model.config(), passages.sequences, passages.length);
  memory::Ledger ledger(INT64_MAX, gpu);  // serves all caches
  const auto full = build_cache(parse_spec("contiguous"), shape, ledger);
  Reading reference(model, *full, passages);
  std::vector<std::unique_ptr<Cache>> caches;
  std::vector<std::unique_ptr<Reading>> readings;
  std::vector<Reading*> pointers;
  for (const LayerSpecs& spec : specs) {
    caches.push_back(build_cache(spec, shape, ledger));
    readings.push_back(std::make_unique<Reading>(model, *caches.back(), passages));
    pointers.push_back(readings.back().get());
  }
  read_together(passages, schedule, reference, pointers, [](int64_t) { return true; });
  std::vector<std::vector<Prediction>> predictions;
  for (const auto& reading : readings) {
    if (reading->failure) std::rethrow_exception(reading->failure);
    predictions.push_back(std::move(reading->predictions));
  }
  return predictions;
}

}  // namespace kv::measure
