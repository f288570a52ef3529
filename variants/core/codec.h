// The bits that are stored: the encodings of K and V, and the number of newest rows that wait unencoded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/attention.h"
#include "kernels/span.h"
#include "variants/core/codebooks.h"

namespace kv {

struct Interval {
  double low = 0.0, high = 0.0;
};

// A side's rows lie in the cache as this makes them, and are encoded after it (kernels/hadamard.h).
enum class Rotation : uint8_t {
  kNone,
  kHadamard,
  kRandom,  // random signs of the channels, then the Hadamard transform: no input is adversarial
};

// The rows of a sequence as they are encoded: in units, behind the first ones, which stay raw for good, and before the
// newest, which wait raw.
struct RowUnits {
  int64_t rows = 1, first = 0, waiting = 0;  // of a unit; the first; the newest, at least, in whole units
  // Units that are encoded once there are so many rows.
  int64_t encoded(int64_t all) const { return std::max<int64_t>(0, all - first - waiting) / rows; }
};

struct Codec {
  Encoding k, v;
  // Rows that move to the encoded part at once, where that is more than the groups of K and V ask for.
  int64_t rows_together = 1;
  // The newest rows that stay raw (f16): at least this many once there are that many, at most `unit rows` - 1
  // more.
  int64_t residual = 0;
  // The first rows of a sequence stay raw (f16) for good. All after them are encoded as they would be without those.
  int64_t first = 0;
  // Every read decodes all rows to an f32 copy first, instead of inside attention.
  bool read_copy = false;
  // Arithmetic of attention over codes, on the CPU in steps of a few tokens.
  Arithmetic arithmetic = Arithmetic::kExact;
  Rotation k_rotation = Rotation::kNone, v_rotation = Rotation::kNone;
  // From every key of a head the mean of its first so many is subtracted before it is encoded (SageAttention, Zhang et al.
  // 2024, arXiv:2410.02367): all scores of a query change by the same number, which softmax does not see. Those first
  // keys wait raw, so it is a multiple of the rows that are encoded together. 0: keys stay as they are.
  int64_t mean_rows = 0;
  // ||decoded - row|| / ||row|| over rows of N(0,1) of head_dim 32…512, of K and of V, before any rotation. Two-sided: an error
  // below the floor means that something else was stored than what the codec claims.
  Interval k_error = {}, v_error = {};

  // Codebooks learned from a model's K and V, where an encoding has such (kernels/format/vq.h); else null.
  std::shared_ptr<const Codebooks> k_books = {}, v_books = {};
  // Files of learned codebooks that are not here: sizes are known without them, and nothing else is.
  std::string k_absent = {}, v_absent = {};
  // A user's functions, "FILE:ENCODE+DECODE": rows are stored as `k` and `v` say once they have gone through both, and the bytes
  // between are counted (Memory::count_codes). Empty: none.
  std::string function = {};
  // The model's numbers of the cache's layers; empty: the same.
  std::vector<int> layers = {};

  // The codebooks of a head of the cache's.
  HeadTables tables(int layer, int kv_head) const;
  bool learned_keys() const { return k_books || !k_absent.empty(); }
  bool learned() const { return learned_keys() || v_books || !v_absent.empty(); }
  // Throws what read_codebooks() throws where a file is not here.
  void require_codebooks() const;
  bool is_raw() const { return k == Encoding{} && v == Encoding{} && function.empty(); }
  bool rotates() const { return k_rotation != Rotation::kNone || v_rotation != Rotation::kNone; }
  // Rows that are encoded and moved together.
  int64_t unit_rows() const { return std::max<int64_t>({k.group, v.group, rows_together, mean_rows}); }
  RowUnits units() const {
    const int64_t rows = unit_rows();
    return {rows, first, (residual + rows - 1) / rows * rows};
  }
};

}  // namespace kv
