// The kept rows that a query reads: the state of one (sequence, layer, kv head).
//
// A selection chooses for each token of a step by itself, so an answer does not depend on how tokens are divided into
// steps. All query heads of a kv head read the same rows. Rows that are not chosen cost attention nothing, and stay.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/span.h"
#include "variants/core/memory.h"

namespace kv {

// Rows [begin, end) in slot order.
struct RowRange {
  int64_t begin, end;
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

struct SelectionContext {
  int64_t max_tokens;  // most tokens of a sequence
  int head_dim;
  Memory* memory;  // for metadata of rows to choose by, as kMetadata
};

// The inputs of a choice.
struct SelectionInput {
  const float* q;  // [group, head_dim] of the newest token, as they meet the stored keys
  int group;       // query heads
  std::span<const Span>
      spans;  // rows that are kept, in slot order, up to the newest; each row is a unit of its own
  int64_t rows;
  // Scratch of the entry's candidates() numbers each. If the entry has `weighs`, scores begin as the attention weight of
  // each row, summed over the group; else they are not initialised.
  std::span<float> scores;
  std::span<int32_t> order;
};

class Selection {
 public:
  virtual ~Selection() = default;
  virtual std::unique_ptr<Selection> clone() const = 0;
  // The rows that the newest token's queries read: at least one, ascending, and apart from each other.
  virtual std::vector<RowRange> choose(const SelectionInput& in) = 0;
  // Rows from `rows` on have gone, and others may come in their place.
  virtual void truncate(int64_t /*rows*/) {}
};

}  // namespace kv
