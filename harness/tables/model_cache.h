// What the cache of a whole model holds: its layers' closed forms, and the ledger's count of a real one.
//
// Layers that keep alike are one cache. A model whose layers are all alike has one; Gemma has two, since a
// layer with a window never holds more rows than that, whatever the context.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/config/geometry.h"
#include "variants/cache/cache.h"

namespace kv::tables {

struct Load {
  int64_t tokens = 1;  // of each sequence; caches are made for no more than these
  int batch = 1;       // sequences
};

class ModelCache {
 public:
  // `spec` says what global layers keep. A layer with a window keeps whichever is less: the window (as
  // `ring`), or what the spec's own retention leaves.
  ModelCache(const config::Geometry& geometry, const Spec& spec, const Load& load);

  // Empty if such a cache is possible, else why not. The rest must not be called then.
  std::string unsupported() const;
  // Payload, metadata and slack; for caches beyond 2^62 bytes, 2^62.
  int64_t predicted_bytes() const;
  int64_t predicted_disk_bytes() const;
  // If this is a kind of cache that can be built at all (MLA's is not).
  bool can_be_built() const { return !latent_; }
  // How long filling it takes, in bytes of f32 K and V that an append moves in the same time.
  double filling_bytes() const;
  // Builds it, fills it with every token of every sequence, and counts. Throws std::bad_alloc, and
  // std::logic_error where the ledger and the closed form do not agree.
  int64_t ledger_bytes(int64_t limit_bytes = INT64_MAX) const;

 private:
  struct Part {
    Spec spec;
    CacheShape shape;
    bool cut;  // to a window that the user's spec does not name
  };
  int64_t predicted_bytes(const Part& part) const;
  int64_t ledger_bytes(const Part& part, int64_t limit_bytes) const;

  Load load_;
  bool latent_;
  std::vector<Part> parts_;
};

}  // namespace kv::tables
