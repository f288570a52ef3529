// The four stages of a spec and the storage below them, made for one shape: what the parts of a cache share.
#pragma once

#include <memory>
#include <optional>

#include "variants/cache/cache.h"
#include "variants/cache/hadamard_rows.h"
#include "variants/core/entry.h"
#include "variants/storage/rotated_rows.h"
#include "variants/storage/storage.h"

namespace kv {

struct Stages {
  // The memory outlives the stages.
  Stages(const Spec& spec, const CacheShape& shape, Memory& memory);
  Stages(const Stages&) = delete;
  Stages& operator=(const Stages&) = delete;

  // Of the states of all kv heads, [layers, kv_heads].
  size_t index(int layer, int head) const { return static_cast<size_t>(layer) * shape.kv_heads + head; }

  // Heads that attention reads: those of K and V, or more where a placement repeats them.
  int read_heads() const { return shape.kv_heads * placement->repeats(); }

  const Spec spec;
  const CacheShape shape;
  Memory& memory;
  const RetentionEntry& retention;
  const SelectionEntry& selection;
  const Codec codec;
  const UnitLayout unit;
  std::unique_ptr<Placement> placement;
  std::optional<RotatedRows> rotated;    // positions=cache
  std::optional<HadamardRows> hadamard;  // rotate=hadamard, turbo
  std::unique_ptr<Storage> storage;
};

}  // namespace kv
