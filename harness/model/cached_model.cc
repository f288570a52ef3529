#include "harness/model/cached_model.h"

#include <algorithm>
#include <stdexcept>

#include "harness/model/step_parts.h"
#include "variants/cache/cache.h"
#include "variants/cache/compatibility.h"
#include "variants/cache/spec.h"

namespace kv::model {
namespace {

// Caches leave it to their retention what a query sees.
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

}  // namespace

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
  windows_.assign(static_cast<size_t>(model.config().layers),
                  std::vector<ConvolutionWindow>(static_cast<size_t>(sequences)));
  for (int i = 0; i < sequences; ++i) ids_.push_back(cache.add_sequence());
}

std::vector<float> CachedModel::prompt(std::span<const int> ids, int64_t n) {
  std::vector<int64_t> last;
  for (int64_t end = n; end <= std::ssize(ids); end += n) last.push_back(end - 1);
  return step(ids, n, last);
}

std::vector<float> CachedModel::step(std::span<const int> ids, int64_t n, std::span<const int64_t> wanted) {
  std::vector<int64_t> positions(ids.size());
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = tokens_ + static_cast<int64_t>(i) % n;
  std::vector<float> logits = model_.forward(
      ids, positions,
      [&](int layer, int64_t, const float* q, const float* k, const float* v, float* out) {
        attend(layer, n, q, k, v, out);
      },
      rotary_, wanted,
      [&](int layer, const float* projected, float* out) { recur(layer, n, projected, out); });
  tokens_ += n;
  return logits;
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

void CachedModel::attend(int layer, int64_t n, const float* q, const float* k, const float* v, float* out) {
  const std::span<const StepInput> inputs = rows_.lay_out(model_.config(), layer, ids_, n, q, k, v);
  step_cache(layer, inputs);
  tell(layer, inputs);
  rows_.copy_out(model_.config(), out);
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
