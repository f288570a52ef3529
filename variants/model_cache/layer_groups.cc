#include "variants/model_cache/layer_groups.h"

#include <algorithm>
#include <stdexcept>

#include "variants/model_cache/model_cache.h"
#include "variants/model_cache/resolve.h"

namespace kv {
namespace {

std::vector<ModelLayer> layers_of(const ModelShape& shape) {
  if (shape.kinds.empty()) return std::vector<ModelLayer>(static_cast<size_t>(std::max(0, shape.layers)));
  if (std::ssize(shape.kinds) != shape.layers)
    throw std::logic_error("a model of " + std::to_string(shape.layers) + " layers with the kinds of " +
                           std::to_string(shape.kinds.size()));
  return shape.kinds;
}

// Sums `bytes_of` over the groups.
template <class BytesOf>
int64_t sum(const LayerSpecs& specs, const ModelShape& shape, BytesOf bytes_of) {
  int64_t bytes = 0;
  for (const LayerGroup& group : groups_of(specs, shape)) bytes += bytes_of(group);
  return bytes;
}

std::vector<const Spec*> all_specs(const LayerSpecs& specs) {
  std::vector<const Spec*> all{&specs.fallback};
  for (const LayerException& e : specs.exceptions) all.push_back(&e.spec);
  return all;
}

bool is_one_cache(const std::vector<LayerGroup>& groups, const ModelShape& shape) {
  return groups.size() == 1 && !groups.front().linear && std::ssize(groups.front().layers) == shape.layers;
}

}  // namespace

std::vector<LayerGroup> groups_of(const LayerSpecs& specs, const ModelShape& shape) {
  const std::vector<ModelLayer> layers = layers_of(shape);
  const std::vector<ResolvedLayer> resolved = resolve(specs, layers, shape.max_tokens);
  std::vector<LayerGroup> groups;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].shares >= 0) continue;
    const bool linear = is_linear(layers[i]);
    if (!linear && !keeps_rows(layers[i])) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const LayerGroup& g) {
      return g.linear == linear && (linear || g.spec == resolved[i].spec);
    });
    if (group == groups.end())
      group = groups.insert(group, {.spec = resolved[i].spec, .linear = linear, .cut = false, .layers = {}});
    group->cut = group->cut || resolved[i].cut;
    group->layers.push_back(static_cast<int>(i));
  }
  return groups;
}

CacheShape shape_of(const LayerGroup& group, const ModelShape& shape) {
  CacheShape own = shape;
  own.layers = static_cast<int>(group.layers.size());
  if (own.layers != shape.layers) own.model_layers = group.layers;
  return own;
}

std::unique_ptr<Cache> build_cache(const LayerSpecs& specs, const ModelShape& shape, Memory& memory) {
  const std::vector<LayerGroup> groups = groups_of(specs, shape);
  if (is_one_cache(groups, shape))
    return build_cache(groups.front().spec, shape_of(groups.front(), shape), memory);
  return std::make_unique<ModelCache>(groups, shape, memory);
}

int64_t predicted_bytes(const LayerSpecs& specs, const ModelShape& shape, std::span<const int64_t> lengths,
                        std::span<const int64_t> prompts) {
  return sum(specs, shape, [&](const LayerGroup& group) {
    const CacheShape own = shape_of(group, shape);
    if (group.linear) return linear_state_bytes(shape.linear) * own.layers * std::ssize(lengths);
    return predicted_bytes(group.spec, own, lengths, prompts);
  });
}

double bits_per_value(const LayerSpecs& specs, const ModelShape& shape) {
  StoredValues all;
  for (const LayerGroup& group : groups_of(specs, shape)) {
    if (group.linear) continue;
    const StoredValues own = stored_values(group.spec, shape_of(group, shape));
    all.values += own.values;
    all.bits += own.bits;
  }
  return all.values > 0 ? all.bits / all.values : 0.0;
}

int64_t predicted_copies(const LayerSpecs& specs, const ModelShape& shape, std::span<const int64_t> lengths) {
  return sum(specs, shape, [&](const LayerGroup& group) {
    return group.linear ? 0 : predicted_copies(group.spec, shape_of(group, shape), lengths);
  });
}

TierBytes predicted_tiers(const LayerSpecs& specs, const ModelShape& shape, std::span<const int64_t> lengths,
                          std::span<const int64_t> prompts) {
  TierBytes bytes{.hot = predicted_bytes(specs, shape, lengths, prompts)};
  for (const LayerGroup& group : groups_of(specs, shape)) {
    if (group.linear) continue;
    const TierBytes own = predicted_tiers(group.spec, shape_of(group, shape), lengths, prompts);
    bytes.warm += own.warm;
    bytes.disk += own.disk;
  }
  bytes.hot -= bytes.warm;
  return bytes;
}

RowShares row_shares(const LayerSpecs& specs, const ModelShape& shape, const Queries& queries) {
  const std::vector<LayerGroup> full = groups_of(default_spec(), shape);
  RowShares sum;
  double layers = 0;
  for (const LayerGroup& own : groups_of(specs, shape)) {
    for (const LayerGroup& whole : full) {
      const auto both = static_cast<double>(std::ranges::count_if(
          own.layers, [&](int layer) { return std::ranges::binary_search(whole.layers, layer); }));
      if (own.linear || both == 0) continue;
      const RowShares shares = row_shares(own.spec, whole.spec, shape_of(own, shape), queries);
      sum = {sum.encoded + both * shares.encoded, sum.dropped + both * shares.dropped};
      layers += both;
    }
  }
  return layers > 0 ? RowShares{sum.encoded / layers, sum.dropped / layers} : sum;
}

bool has_tiers(const LayerSpecs& specs) {
  return specs.any([](const Spec& spec) { return has_tiers(spec); });
}

double kernel_error_bound(const LayerSpecs& specs) {
  double bound = 0.0;
  for (const Spec* spec : all_specs(specs)) bound = std::max(bound, kernel_error_bound(*spec));
  return bound;
}

bool rotates_at_read(const LayerSpecs& specs) { return rotates_at_read(specs.fallback); }

std::string unsupported_reason(const LayerSpecs& specs, const ModelShape& shape, const cuda::Gpu* gpu) {
  for (const LayerGroup& group : groups_of(specs, shape)) {
    if (group.linear) continue;
    const std::string reason = unsupported_reason(group.spec, shape_of(group, shape), gpu);
    if (reason.empty()) continue;
    if (group.cut) return "layers with a window keep it as a ring: " + reason;
    return specs.is_one() ? reason : "'" + group.spec.print() + "': " + reason;
  }
  return "";
}

}  // namespace kv
