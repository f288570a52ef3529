#include "harness/measure/teacher_forcing.h"

#include <algorithm>
#include <memory>

#include "harness/memory/ledger.h"
#include "variants/cache/cache.h"
#include "variants/cache/prefill.h"
#include "variants/cache/spec.h"
#include "variants/storage/residual_buffer.h"

namespace kv::measure {
namespace {

// Readings of a step, whose logits take a row for each scored token and reading.
int64_t side_by_side(int64_t readings, int64_t scored) {
  return std::clamp<int64_t>(model::kRowsSideBySide / std::max<int64_t>(scored, 1), 1, readings);
}

struct Stopped {};  // ends a step

// One step: tokens [first, first + n) of every sequence.
class Step {
 public:
  Step(const Passages& passages, const StepSchedule& schedule, int64_t first, int64_t n)
      : passages_(passages),
        full_(schedule.is_full(first)),
        first_(first),
        n_(n),
        ids_(tokens_of_step(passages, first, n)) {
    for (int64_t at = 0; at < std::ssize(ids_); ++at) {
      if (position(at) >= passages.first && position(at) < passages.end()) scored_.push_back(at);
    }
  }

  // All readings that go on, of which the first is the reference. Throws Stopped if `go_on` says so.
  void read(std::span<Reading* const> readings, const std::function<bool(double)>& go_on) {
    const auto most = full_ ? readings.size()
                            : static_cast<size_t>(side_by_side(std::ssize(readings), std::ssize(scored_)));
    for (size_t begin = 0; begin < readings.size(); begin += most) {
      const auto some = readings.subspan(begin, std::min(most, readings.size() - begin));
      const double layers = readings.front()->decoder.layers(),
                   share = static_cast<double>(some.size()) / static_cast<double>(readings.size());
      read_side_by_side(some, begin == 0, [&] {
        if (!go_on(static_cast<double>(n_) * share / layers)) throw Stopped();
      });
    }
  }

 private:
  int64_t position(int64_t at) const { return first_ + at % n_; }

  void read_side_by_side(std::span<Reading* const> readings, bool with_reference,
                         const std::function<void()>& after_layer) {
    std::vector<model::CachedModel*> models;
    for (Reading* r : readings) models.push_back(&r->decoder);
    model::CachedModel::Together step;
    try {
      step = model::CachedModel::step_together(models, ids_, n_, scored_, full_, after_layer);
    } catch (const Stopped&) {
      throw;
    } catch (...) {
      if (with_reference || !models.front()->failure()) throw;
      return;  // all have failed
    }
    if (with_reference && models.front()->failure()) std::rethrow_exception(models.front()->failure());
    if (scored_.empty()) return;
    const auto count = std::ssize(scored_), vocab = int64_t{readings.front()->decoder.vocab_size()};
    const auto logits_of = [&](int64_t row) {
      return std::span<const float>(step.logits)
          .subspan(static_cast<size_t>(row * vocab), static_cast<size_t>(vocab));
    };
    if (with_reference) {
      reference_.resize(scored_.size());
#pragma omp parallel for schedule(dynamic, 1)
      for (int64_t row = 0; row < count; ++row)
        reference_[static_cast<size_t>(row)] = distribution_of(logits_of(row));
    }
    const auto of_group = [&](int64_t row, const Prediction& prediction) {
      const int64_t at = scored_[static_cast<size_t>(row % count)];
      for (size_t r = 0; r < readings.size(); ++r) {
        if (step.group[r] == row / count)
          readings[r]->predictions[static_cast<size_t>(at / n_ * passages_.length + position(at))] =
              prediction;
      }
    };
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t row = 0; row < std::ssize(step.logits) / vocab; ++row) {
      const int64_t at = scored_[static_cast<size_t>(row % count)];
      of_group(row, compare_predictions(logits_of(row), reference_[static_cast<size_t>(row % count)],
                                        passages_.id(static_cast<int>(at / n_), position(at) + 1)));
    }
  }

  const Passages& passages_;
  const bool full_;
  const int64_t first_, n_;
  const std::vector<int> ids_;           // [sequences, n]
  std::vector<int64_t> scored_;          // indices into ids_ whose predictions count
  std::vector<Distribution> reference_;  // [scored]
};

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
           ResidualBuffer::waits(codec_of(spec).make(spec.codec));
  });
}

int64_t step_bytes(const model::ModelConfig& config, const StepSchedule& schedule, const Passages& passages,
                   int64_t readings) {
  // In floating point: a config may ask for absurdly many.
  const double sequences = passages.sequences, length = static_cast<double>(passages.length),
               side = config.head_dim() * (config.q_heads + 2.0 * config.kv_heads),
               a_row = 5.0 * config.dim + 5.0 * side, a_block = 4.0 * config.dim + 4.0 * config.hidden_dim;
  // `full`: rows of one model, or of two where some caches rotate keys, and what each cache is given.
  const auto bytes_of = [&](double tokens, double scored, bool full) {
    const double beside = static_cast<double>(
        side_by_side(readings + 1, static_cast<int64_t>(std::min(sequences * scored, 1e9))));
    const double models = full ? 2.0 : beside,
                 given = full ? 2.0 * side * sequences * tokens * static_cast<double>(readings + 1) : 0.0;
    const double rows = models * sequences * tokens, block = std::min(rows, 2.0 * model::kRowsSideBySide);
    return (given + rows * a_row + block * a_block + models * sequences * scored * config.vocab_size) *
               sizeof(float) +
           sequences * scored * config.vocab_size * 2 * sizeof(double);
  };
  const double prompt = std::min(static_cast<double>(schedule.prompt), length),
               step = std::min(static_cast<double>(schedule.step), length),
               bytes = std::max(bytes_of(prompt, std::max(0.0, prompt - static_cast<double>(passages.first)),
                                         schedule.is_full(0)),
                                bytes_of(step, step, false));
  return static_cast<int64_t>(std::min(bytes, 1e18));
}

bool read_together(const Passages& passages, const StepSchedule& schedule, Reading& reference,
                   std::span<Reading* const> readings, const std::function<bool(double tokens)>& go_on) {
  for (int64_t first = 0, n; first < passages.length; first += n) {
    n = std::min(schedule.tokens(first), passages.length - first);
    std::vector<Reading*> side_by_side{&reference};
    for (Reading* r : readings) {
      if (!r->decoder.failure()) side_by_side.push_back(r);
    }
    try {
      Step(passages, schedule, first, n).read(side_by_side, go_on);
    } catch (const Stopped&) {
      return false;
    }
  }
  return true;
}

std::vector<std::vector<Prediction>> read_specs(const model::Model& model, const Passages& passages,
                                                const StepSchedule& schedule,
                                                std::span<const LayerSpecs> specs, cuda::Gpu* gpu,
                                                const std::function<bool(double)>& go_on) {
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
  if (!read_together(passages, schedule, reference, pointers, go_on)) return {};
  std::vector<std::vector<Prediction>> predictions;
  for (const auto& reading : readings) {
    if (reading->decoder.failure()) std::rethrow_exception(reading->decoder.failure());
    predictions.push_back(std::move(reading->predictions));
  }
  return predictions;
}

}  // namespace kv::measure
