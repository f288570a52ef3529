// The sequences of a cache: their state, and how they are added, forked and released.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "variants/cache/stages.h"
#include "variants/core/counted_vector.h"
#include "variants/storage/residual_buffer.h"

namespace kv {

// The spans of one head, kept from step to step: only the end of the list is made anew, so that a step over
// many small blocks does not rebuild thousands of them.
struct HeadSpans {
  explicit HeadSpans(Memory& memory) : spans(CountingAllocator<Span>(&memory)) {}
  SpanList spans;
  size_t settled = 0;  // spans that the next append will not touch, and their rows
  int64_t settled_rows = 0;
  int64_t moves = 0;  // Placement::moves() when they were made
};

// The rows of one head that attention reads, in specs that select.
struct HeadSelection {
  std::unique_ptr<Selection> chooser;
  std::vector<RowRange> read;  // by the newest attention; empty before the first
};

struct Sequence {
  bool open = false;
  std::vector<int64_t> tokens;                        // [layers]
  std::vector<Slice> slice;                           // [layers] the one in progress
  std::vector<std::unique_ptr<Retention>> retention;  // [layers, kv_heads]
  std::vector<ResidualBuffer> residual;               // [layers]
  std::vector<HeadSpans> spans;                       // [layers, kv_heads]
  std::vector<HeadSelection> selection;               // [layers, kv_heads], or none where all is read
};

class Sequences {
 public:
  explicit Sequences(Stages& stages) : stages_(stages) {}

  // The functions of Cache.
  SequenceId add() { return adopt({}); }
  SequenceId adopt(std::span<const SharedBlock> prefix);
  SequenceId fork(SequenceId from);
  void release(SequenceId id);
  std::string refuses_truncation(SequenceId id, int64_t tokens) const;
  std::function<void()> prepare_truncation(SequenceId id, int64_t tokens);

  // Throws std::logic_error if there is no such sequence.
  Sequence& at(SequenceId id) { return const_cast<Sequence&>(std::as_const(*this).at(id)); }
  const Sequence& at(SequenceId id) const;
  Retention& policy(SequenceId id, int layer, int head) {
    return *at(id).retention[stages_.index(layer, head)];
  }

  // Units of a layer's head that lie in the placement once the sequence has `tokens` tokens; without a number, now.
  int64_t stored_units(const Sequence& s, int layer, int head, int64_t tokens) const;
  int64_t stored_units(const Sequence& s, int layer, int head) const {
    return stored_units(s, layer, head, s.tokens[layer]);
  }

  // The function of Cache.
  std::vector<int64_t> read_slots(SequenceId id, int layer, int head) const;

  // Placement::view of a layer's heads.
  void view(SequenceId id, int layer);
  // The spans of all that is kept and in memory that kernels read, until the sequence's next change.
  std::span<const Span> spans(SequenceId id, int layer, int read_head);

 private:
  SequenceId free_id() const;
  void open(SequenceId id);
  void add_span_lists(Sequence& s) const;

  Stages& stages_;
  std::vector<Sequence> sequences_;
};

}  // namespace kv
