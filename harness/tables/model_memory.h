// Bytes of a whole model's cache: its layers' closed forms, and the ledger's count of a real one.
//
// Layers that keep alike are one cache (variants/model_cache). A model whose layers are all alike has one; Gemma has two,
// since a layer with a window never holds more rows than that, whatever the context.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/config/geometry.h"
#include "variants/model_cache/layer_groups.h"

namespace kv::tables {

struct Load {
  int64_t tokens = 1;  // in each sequence; caches are made for no more
  int batch = 1;       // sequences
};

class ModelMemory {
 public:
  // Throws std::invalid_argument, with a caret, for specs that name layers or kinds that the model lacks.
  ModelMemory(const config::Geometry& geometry, const LayerSpecs& specs, const Load& load);

  // Empty if such a cache is possible, else why not. The rest must not be called then.
  std::string unsupported() const;
  // Payload, metadata and slack; for caches beyond 2^62 bytes, 2^62. The states of linear layers, where the model's file
  // says how large they are.
  int64_t predicted_bytes() const;
  // The same by tier, files included.
  TierBytes predicted_tiers() const;
  // How long filling it takes, in bytes of f32 K and V that an append moves in the same time.
  double filling_bytes() const;
  // Builds each group's cache, fills it with every token of every sequence, and counts. Throws std::bad_alloc, and
  // std::logic_error where the ledger and the closed form do not agree.
  int64_t ledger_bytes(int64_t limit_bytes = INT64_MAX) const;

 private:
  CacheShape shape_of(const LayerGroup& group) const { return kv::shape_of(group, shape_); }
  int64_t predicted_bytes(const LayerGroup& group) const;
  TierBytes predicted_tiers(const LayerGroup& group) const;
  int64_t ledger_bytes(const LayerGroup& group, int64_t limit_bytes) const;

  Load load_;
  LayerSpecs specs_;
  ModelShape shape_;
  std::vector<LayerGroup> groups_;  // whose bytes count
};

}  // namespace kv::tables
