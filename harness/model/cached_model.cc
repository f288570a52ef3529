#include "harness/model/cached_model.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "harness/model/codebooks.h"
#include "harness/model/step_parts.h"
#include "variants/cache/cache.h"
#include "variants/cache/compatibility.h"
#include "variants/cache/spec.h"

namespace kv::model {
namespace {

class Seconds {
 public:
  double so_far() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

void check_window(const ModelConfig& config, const Cache& cache) {
  const int64_t tokens = cache.shape().max_tokens;
  for (int layer = 0; layer < config.layers; ++layer) {
    const int64_t window = config.window(layer);
    if (window == 0 || tokens <= window || !retention_of(cache.spec(layer)).keeps_all) continue;
    const Spec& spec = cache.spec(layer);
    throw std::invalid_argument(config.viewer(layer) + " sees the last " + std::to_string(window) +
                                " tokens, but '" + spec.print() + "' shows it all of " +
                                std::to_string(tokens) + ": give it ring(window=" + std::to_string(window) +
                                "), or shorter sequences");
  }
}

void check_rotation(const ModelConfig& config, const LayerSpecs& specs) {
  if (!rotates_at_read(specs)) return;
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument(why + ": '" + specs.print() + "' needs to be without positions=cache");
  };
  if (!config.rotary) refuse("the model's positions are learned, not rotary");
  for (int layer = 0; layer < config.layers; ++layer) {
    if (config.rope_of(layer) == config.rope) continue;
    refuse(config.viewer(layer) + " has a RoPE of its own, and a cache rotates all layers alike");
  }
}

ModelShape cache_shape(const ModelConfig& config, int sequences, int64_t max_tokens) {
  return {{.layers = config.layers,
           .q_heads = config.q_heads,
           .kv_heads = config.kv_heads,
           .head_dim = config.head_dim(),
           .max_tokens = max_tokens,
           .max_sequences = sequences,
           .rope = config.rope},
          config.kinds,
          config.linear};
}

CachedModel::CachedModel(const Model& model, Cache& cache, int sequences, Rotary rotary)
    : model_(model), cache_(cache), rotary_(rotates_at_read(cache) ? Rotary::kCache : rotary) {
  check_window(model.config(), cache);
  int rows = 0;  // a layer that keeps them
  while (!cache.keeps_rows(rows)) ++rows;
  check_rotation(model.config(), cache.spec(rows));
  check_codebooks(model, cache);
  windows_.assign(static_cast<size_t>(model.config().layers),
                  std::vector<ConvolutionWindow>(static_cast<size_t>(sequences)));
  for (int i = 0; i < sequences; ++i) ids_.push_back(cache.add_sequence());
}

std::vector<float> CachedModel::prompt(std::span<const int> ids, int64_t n) {
  std::vector<int64_t> last;
  for (int64_t end = n; end <= std::ssize(ids); end += n) last.push_back(end - 1);
  return step(ids, n, last);
}

std::vector<float> CachedModel::step(std::span<const int> ids, int64_t n, Model::Wanted wanted) {
  CachedModel* const alone = this;
  return step_together({&alone, 1}, ids, n, wanted);
}

std::vector<float> CachedModel::step_together(std::span<CachedModel* const> models, std::span<const int> ids,
                                              int64_t n, Model::Wanted wanted) {
  const Seconds whole;
  const CachedModel& first = *models.front();
  const ModelConfig& config = first.model_.config();
  const auto each = std::ssize(ids), all = each * std::ssize(models);
  std::vector<int> tokens;
  std::vector<int64_t> positions, logits_of;
  std::vector<Rotary> rotary;
  for (const CachedModel* m : models) {
    if (wanted) {
      for (const int64_t at : *wanted) logits_of.push_back(std::ssize(tokens) + at);
    }
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    rotary.insert(rotary.end(), ids.size(), m->rotary_);
    for (int64_t i = 0; i < each; ++i) positions.push_back(first.tokens_ + i % n);
  }
  double in_caches = 0;
  std::vector<float> logits = first.model_.forward(
      tokens, positions,
      [&](int layer, int64_t, const float* q, const float* k, const float* v, float* out) {
        in_caches += each_alone(models, [&](CachedModel& m, int64_t at) {
          const int64_t from = at * each * config.head_dim();
          m.attend(layer, n, all, q + from, k + from, v + from, out + from);
        });
      },
      rotary, wanted ? Model::Wanted(logits_of) : std::nullopt,
      [&](int layer, int64_t, const float* projected, float* out) {
        const LayerWeights& weights = first.model_.weights().layers[static_cast<size_t>(layer)];
        in_caches += each_alone(models, [&](CachedModel& m, int64_t at) {
          m.recur(layer, n, projected + at * each * projected_values(config.linear),
                  out + at * each * weights.recurrent_out.cols());
        });
      });
  const double share = (whole.so_far() - in_caches) / static_cast<double>(models.size());
  for (CachedModel* m : models) {
    if (m->failure_) continue;
    m->tokens_ += n;
    m->shared_seconds_ += share;
  }
  return logits;
}

double CachedModel::each_alone(std::span<CachedModel* const> models,
                               const std::function<void(CachedModel& model, int64_t at)>& work) {
  const Seconds whole;
  const auto count = std::ssize(models);
  // Fewer models than threads share them one after another.
#pragma omp parallel for schedule(dynamic, 1) if (count > 1 && count >= omp_get_max_threads())
  for (int64_t at = 0; at < count; ++at) {
    CachedModel& m = *models[static_cast<size_t>(at)];
    if (m.failure_) continue;
    const Seconds own;
    try {
      work(m, at);
    } catch (...) {
      m.failure_ = std::current_exception();
    }
    m.cache_seconds_ += own.so_far();
  }
  const auto failed = [](const CachedModel* m) { return m->failure_ != nullptr; };
  if (std::all_of(models.begin(), models.end(), failed)) std::rethrow_exception(models.front()->failure_);
  return whole.so_far();
}

void CachedModel::fork(int samples) {
  std::vector<SequenceId> all;
  for (const SequenceId id : ids_) {
    all.push_back(id);
    for (int i = 1; i < samples; ++i) all.push_back(cache_.fork(id));
  }
  ids_ = std::move(all);
  for (std::vector<ConvolutionWindow>& layer : windows_) {
    std::vector<ConvolutionWindow> copies;
    for (const ConvolutionWindow& window : layer)
      copies.insert(copies.end(), static_cast<size_t>(samples), window);
    layer = std::move(copies);
  }
}

void CachedModel::recur(int layer, int64_t n, const float* projected, float* out) {
  const LayerWeights& weights = model_.weights().layers[static_cast<size_t>(layer)];
  const ModelConfig& config = model_.config();
  const std::span<const StepInput> inputs =
      linear_rows_.lay_out(config.linear, weights, ids_, n, projected, windows_[static_cast<size_t>(layer)]);
  {
    const StepParts::Timing timing(Part::kState);
    cache_.step(layer, inputs);
  }
  tell(layer, inputs);
  linear_rows_.copy_out(config.linear, weights, config.norm_epsilon, projected, out);
}

void CachedModel::attend(int layer, int64_t n, int64_t rows, const float* q, const float* k, const float* v,
                         float* out) {
  const std::span<const StepInput> inputs =
      rows_.lay_out(model_.config(), layer, step_of(ids_, n), rows, q, k, v);
  step_cache(layer, inputs);
  tell(layer, inputs);
  rows_.copy_out(model_.config(), rows, out);
}

void CachedModel::step_cache(int layer, std::span<const StepInput> inputs) {
  if (inputs.front().n > 1) {  // perhaps in slices, each stored and attended to
    const StepParts::Timing timing(Part::kAttend);
    return cache_.step(layer, inputs);
  }
  {
    const StepParts::Timing timing(Part::kAppend);
    cache_.append(layer, inputs);
  }
  {
    const StepParts::Timing timing(Part::kView);
    cache_.view(layer, inputs);
  }
  const StepParts::Timing timing(Part::kAttend);
  cache_.attend(layer, inputs);
}

}  // namespace kv::model
