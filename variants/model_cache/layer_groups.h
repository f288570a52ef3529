// Groups of layers with equal specs: the cache of a model, and the bytes it will hold.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "variants/cache/cache.h"
#include "variants/cache/compatibility.h"
#include "variants/cache/predicted_bytes.h"
#include "variants/model_cache/layer_specs.h"
#include "variants/model_cache/linear_cache.h"
#include "variants/model_cache/model_layer.h"

namespace kv {

// The geometry of a model's cache. `layers` are all of them.
struct ModelShape : CacheShape {
  ModelShape() = default;
  ModelShape(const CacheShape& shape, std::vector<ModelLayer> kinds_, const LinearShape& linear_ = {})
      : CacheShape(shape), kinds(std::move(kinds_)), linear(linear_) {}

  std::vector<ModelLayer> kinds;  // [layers]; empty where all are "full"
  LinearShape linear;             // the linear layers'
};

// One cache for all layers: a plain one where one spec is for all of them, else a ModelCache (model_cache.h). Throws
// std::invalid_argument as resolve() and build_cache() do. The memory outlives the cache.
std::unique_ptr<Cache> build_cache(const LayerSpecs& specs, const ModelShape& shape, Memory& memory);
inline std::unique_ptr<Cache> build_cache(const Spec& spec, const ModelShape& shape, Memory& memory) {
  return build_cache(LayerSpecs(spec), shape, memory);
}

// The functions of predicted_bytes.h and compatibility.h, for all layers together. Layers that share hold nothing; a linear layer
// holds its state whatever the length.
int64_t predicted_bytes(const LayerSpecs& specs, const ModelShape& shape, std::span<const int64_t> lengths,
                        std::span<const int64_t> prompts = {});
// Bits that store a K or V value, the mean over all that stored_values() counts in a sequence of shape.max_tokens; 0 if no
// layer keeps any.
double bits_per_value(const LayerSpecs& specs, const ModelShape& shape);
int64_t predicted_copies(const LayerSpecs& specs, const ModelShape& shape, std::span<const int64_t> lengths);
TierBytes predicted_tiers(const LayerSpecs& specs, const ModelShape& shape, std::span<const int64_t> lengths,
                          std::span<const int64_t> prompts = {});
// The mean over layers that keep rows; zeros without any.
RowShares row_shares(const LayerSpecs& specs, const ModelShape& shape, const Queries& queries);
// True if some layers' placement has more than one tier.
bool has_tiers(const LayerSpecs& specs);
// The largest of the layers' bounds.
double kernel_error_bound(const LayerSpecs& specs);
// All layers agree: resolve() refuses specs that differ.
bool rotates_at_read(const LayerSpecs& specs);
// Empty if the layers' stages can work together, else the reason. Throws as resolve().
std::string unsupported_reason(const LayerSpecs& specs, const ModelShape& shape,
                               const cuda::Gpu* gpu = nullptr);

// Layers of equal specs and geometry, which are one cache.
struct LayerGroup {
  Spec spec;
  bool linear = false;
  bool cut = false;         // to the window of the layers
  std::vector<int> layers;  // ascending
  friend bool operator==(const LayerGroup&, const LayerGroup&) = default;
};
// In the order of their first layers; left out are those that share, and those of kinds that keep something which
// no cache here does ("mamba"). Throws as resolve().
std::vector<LayerGroup> groups_of(const LayerSpecs& specs, const ModelShape& shape);
// The geometry of a group's cache.
CacheShape shape_of(const LayerGroup& group, const ModelShape& shape);

}  // namespace kv
