// The rows of a sequence's layer that are raw (f16): the newest, until the codec takes them as whole units, and the first,
// where the codec has first=N: softmax gives the first tokens large weights whatever they say (StreamingLLM,
// arXiv:2309.17453), and their keys and values are unlike all others.
//
// KIVI (Liu et al. 2024, arXiv:2402.02750) keeps a residual of full-precision rows because a per-channel
// group cannot be encoded before all its rows are there. Here the buffer is a ring of whole units: once
// `residual` rows plus one unit are filled, the oldest unit is encoded and its place is free. So it holds
// residual … residual + unit - 1 rows, nothing is ever moved, and K and V are treated alike. The first rows lie in front
// of the ring, and the placement's first unit begins behind them.
//
// A codec that removes the mean of the first keys takes it from the rows here, when the last of those keys is there; then
// it is subtracted from them, and from every later key before it comes here. So the mean and every row are the same, whether
// tokens come one by one or in a prompt.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/span.h"
#include "variants/core/codec.h"
#include "variants/core/counted_vector.h"
#include "variants/core/memory.h"
#include "variants/core/placement.h"
#include "variants/core/snapshot.h"
#include "variants/core/unit_ring.h"

namespace kv {

class ResidualBuffer {
 public:
  static bool needed(const Codec& codec) { return waits(codec) || codec.first > 0; }
  // True if rows wait in the buffer before they are encoded.
  static bool waits(const Codec& codec) { return codec.unit_rows() > 1 || codec.residual > 0; }
  // `latent`: one side alone, K, which is V as well (MLA).
  static int64_t bytes(const Codec& codec, int heads, int head_dim, bool latent);
  // Bytes of K and V of one token.
  static int64_t row_bytes(int heads, int head_dim, bool latent);

  // `ring`: where encoded units go.
  ResidualBuffer(const Codec& codec, const UnitRing& ring, int heads, int head_dim, bool latent,
                 Memory& memory);
  ResidualBuffer clone(Memory& memory) const;

  // The address of row `row` of the sequence; a unit's rows lie one behind the other.
  UnitAddress address(int head, int64_t row) const {
    return {{at(head, row, false), nullptr, latent_ ? nullptr : at(head, row, true), nullptr}};
  }
  // The place of a unit in the placement.
  int64_t place(int64_t unit) const { return places_.place(unit); }
  // The buffer's rows as units of one row.
  static UnitLayout layout(int head_dim, bool latent);

  // Once the last of a head's keys that a mean is taken of is stored here, and not yet encoded: takes it, and subtracts it
  // from them.
  void remove_mean(int head);
  // A key as it is stored as row `row`: itself, or in `to` without the mean. [head_dim]
  const float* without_mean(int head, int64_t row, const float* key, float* to) const;
  // The mean that is subtracted from every key, [head_dim]; empty if the codec removes none, and while keys are too few.
  std::span<const float> mean(int head) const;

  // Rows [first, first + n), as stored, to k and v [n, head_dim].
  void get(int head, int64_t first, int64_t n, float* k, float* v) const;
  // The sequence now has `rows` rows, the new ones stored.
  void advance(int64_t rows);
  // The fewest rows that truncate() goes back to: the ring still has, raw, all that would then not be encoded.
  int64_t earliest() const;
  void truncate(int64_t rows) { rows_ = rows; }
  // The rows that are not encoded, as stored; load() comes after advance().
  void save(Writer& to) const;
  void load(Reader& from);
  // Appends the span of the first rows, if there are any.
  void first_span(int head, SpanList& out) const;
  // Appends the spans of the newest rows: one, or two where they wrap around.
  void newest_spans(int head, SpanList& out) const;

 private:
  // Calls visit(bytes of one row) for every row that is not encoded, K and V.
  template <class Visit>
  void for_each_row(Visit visit) const;
  static int64_t ring_rows(const Codec& codec);
  int64_t first_rows() const { return std::min(codec_.first, rows_); }
  // The newest rows, that wait: [begin, rows_).
  int64_t newest_begin() const;
  Span span_of(int head, int64_t row, int64_t rows) const;
  std::byte* at(int head, int64_t row, bool v) const;
  float* mean_of(int head) const { return reinterpret_cast<float*>(means_.data()) + head * head_dim_; }

  Codec codec_;
  RowUnits units_;
  UnitRing places_;
  int heads_, head_dim_;
  bool latent_;
  int64_t ring_;  // rows
  int64_t rows_ = 0;
  // Counted from the first row that is encoded: rows before it have been overwritten in the ring, or never were in it.
  int64_t first_raw_ = 0;
  Block block_;  // [2, heads, first + ring, head_dim] f16: K, then V; of latent rows K alone
  Block means_;  // [heads, head_dim] f32, where the codec removes them
};

}  // namespace kv
