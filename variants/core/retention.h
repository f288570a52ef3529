// The slot that a token gets, and so the token that is forgotten: the state of one (sequence, layer, kv head).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "variants/core/codec.h"
#include "variants/core/memory.h"
#include "variants/core/rope.h"
#include "variants/core/snapshot.h"

namespace kv {

struct RetentionContext {
  int64_t max_tokens;   // most tokens it will be given
  int head;             // layer * kv_heads + kv head, so that random choices differ from head to head
  int kv_heads;         // a layer's
  const Rope* rope;     // by which queries and keys were rotated before they came, if they were
  Memory* memory;       // for metadata of slots (scores, token ids), as kMetadata
  RowUnits units = {};  // of the codec
};

// A run of a step's tokens that may be stored whole before its queries attend.
struct Slice {
  int64_t tokens = 1;
  bool scored = false;  // observe() must follow, with the attention weights of the slice's queries
  bool shown = false;   // show() must follow, with the slice itself
};

// A slice's own rows of one KV head, before any codec.
struct SliceRows {
  int64_t n;
  int head_dim, value_dim, group;
  const float* q;  // [group, n, head_dim]
  const float* k;  // [n, head_dim]
  const float* v;  // [n, head_dim]; k where rows are latent, whose first value_dim values are V
};

class SlotTable;

class Retention {
 public:
  // The next token's slot is chosen by choosing_table() when its row is stored.
  static constexpr int64_t kChosenByTable = -1;

  virtual ~Retention() = default;
  virtual std::unique_ptr<Retention> clone() const = 0;

  // The slot of the next token (they come in order, from 0), whose key is `key` [head_dim], before any codec.
  // A slot that was in use loses its token. May be kChosenByTable. Where tokens wait raw, the one they get later.
  virtual int64_t admit(std::span<const float> key) = 0;
  // Slots in use are 0 … slots()-1.
  virtual int64_t slots() const = 0;
  virtual int64_t token_at(int64_t slot) const = 0;
  // The token of each slot.
  virtual std::vector<int64_t> tokens_by_slot() const {
    std::vector<int64_t> tokens(static_cast<size_t>(slots()));
    for (size_t slot = 0; slot < tokens.size(); ++slot) tokens[slot] = token_at(static_cast<int64_t>(slot));
    return tokens;
  }
  // The slots in use, in the order of their tokens.
  virtual std::vector<int64_t> oldest_first() const {
    std::vector<std::pair<int64_t, int64_t>> tokens;
    for (const int64_t token : tokens_by_slot()) tokens.emplace_back(token, std::ssize(tokens));
    std::sort(tokens.begin(), tokens.end());
    std::vector<int64_t> order;
    for (const auto& [token, slot] : tokens) order.push_back(slot);
    return order;
  }
  // Slots in use once `tokens` have been admitted (at least as many as now). As tokens grow it shrinks by a codec's raw
  // rows alone, when a unit of them takes another's place.
  virtual int64_t slots_after(int64_t tokens) const = 0;

  // The first slice of a step's `remaining` (>= 1) tokens: 1 token, or several that all take new slots in
  // order, so that each query's view is a prefix of the slots. Asked of every head of a layer before each
  // slice; all answer alike.
  virtual Slice next(int64_t remaining) { return {.tokens = remaining}; }
  // Not null where attention adds to the scores of this table itself: it then chooses the slots, and observe() is not
  // called (SlotTable::chooses).
  virtual const SlotTable* choosing_table() const { return nullptr; }
  // weights [slots()]: the attention weight that each slot got, summed over the queries of the slice and of
  // the head's group.
  virtual void observe(std::span<const float> /*weights*/) {}
  // The slice's own rows, once it has attended.
  virtual void show(const SliceRows& /*rows*/) {}
  // Called then. If not empty: the slots to keep, ascending, which become slots 0, 1, …; all heads of a layer
  // keep the same number, unless the entry says that they are ragged.
  virtual std::vector<int64_t> compact() { return {}; }

  // The fewest tokens that truncate() goes back to: 0, or more where later tokens have overwritten earlier ones. The entry
  // says why (`irreversible`).
  virtual int64_t earliest() const { return 0; }
  // Forgets all but the first `tokens` (earliest() … as many as now): the state is then the one after so many. One that
  // keeps every token goes on to more as well, whose rows are there already.
  virtual void truncate(int64_t tokens) = 0;

  // The state between two steps, and back into a fresh one of the same settings.
  virtual void save(Writer& to) const = 0;
  // False if the bytes are no state after `tokens` tokens; the state is then of no use.
  virtual bool load(Reader& from, int64_t tokens) = 0;
};

}  // namespace kv
