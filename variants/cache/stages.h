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

  // Index into the states of all kv heads, [layers, kv_heads].
  size_t index(int layer, int head) const { return static_cast<size_t>(layer) * shape.kv_heads + head; }

  // A head's place in the placement, which keeps all heads of a layer together or, if they keep different numbers of rows,
  // each head as a layer of its own, of one head.
  struct Place {
    int layer, head;
  };
  Place place(int layer, int head) const {
    return retention.ragged ? Place{layer * shape.kv_heads + head, 0} : Place{layer, head};
  }
  // Placement layers per layer: kv_heads if ragged, else 1.
  int placed_heads() const { return retention.ragged ? shape.kv_heads : 1; }
  UnitAddress at(SequenceId sequence, int layer, int head, int64_t number) const {
    const Place to = place(layer, head);
    return placement->at(sequence, to.layer, to.head, number);
  }

  // Heads that attention reads: those of K and V, or more where a placement repeats them.
  int read_heads() const { return shape.kv_heads * placement->repeats(); }

  const Spec spec;
  const CacheShape shape;
  Memory& memory;
  const RetentionEntry& retention;
  const SelectionEntry& selection;
  const Codec codec;
  const UnitLayout unit;
  const UnitRing ring;
  std::unique_ptr<Placement> placement;
  std::optional<RotatedRows> rotated;    // positions=cache
  std::optional<HadamardRows> hadamard;  // rotate=hadamard, turbo
  std::unique_ptr<Storage> storage;
};

}  // namespace kv
