// The place of a slot's bytes. A placement stores opaque units of four planes and never reads them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/span.h"
#include "variants/core/codec.h"
#include "variants/core/counted_vector.h"
#include "variants/core/memory.h"

namespace kv {

enum Plane { kKData, kKMeta, kVData, kVMeta, kPlanes };

// A unit: the rows that the codec encodes together, of one head. A side whose encoding has smaller groups
// stores several of its own units, one after the other, inside it.
struct UnitLayout {
  int64_t rows = 1;
  std::array<int64_t, kPlanes> bytes{};   // a unit's, by plane; 0 where the codec has no such plane
  Encoding k, v;                          // V of latent rows (MLA) has no planes: it is read from K's
  std::array<int64_t, kPlanes> stride{};  // bytes between the encodings' own units inside a unit
};

// The layout of a codec's units. `latent`: K alone is stored, and V is read from it (MLA); both have one encoding then.
UnitLayout unit_layout(const Codec& codec, int head_dim, bool latent);

struct UnitAddress {
  std::array<std::byte*, kPlanes> plane{};
};

struct PlacementContext {
  Memory* memory;
  int layers, heads;
  int64_t max_units;  // units of a head that a sequence of the most tokens needs
  int max_sequences;
  UnitLayout unit;
  int head_dim;
  int group = 1;        // query heads that share a head's rows
  bool latent = false;  // see unit_layout()
  // Units of each head, [heads of a layer], where they differ; else empty. Each head is then placed as a layer of its own,
  // of one head: `layers` counts these and `heads` is 1.
  std::vector<int64_t> head_units = {};
  int64_t most_units(int layer) const {
    return head_units.empty() ? max_units : head_units[static_cast<size_t>(layer) % head_units.size()];
  }
  // Each head's codebooks, [layers, heads]; empty where none are learned.
  std::vector<HeadTables> tables = {};
  HeadTables tables_of(int layer, int head) const {
    return tables.empty() ? HeadTables() : tables[static_cast<size_t>(layer * heads + head)];
  }
  // Layers of the model.
  int whole_layers() const {
    return head_units.empty() ? layers : layers / static_cast<int>(head_units.size());
  }
  // Bytes of one unit of one head, all planes together.
  int64_t unit_bytes() const { return unit.bytes[0] + unit.bytes[1] + unit.bytes[2] + unit.bytes[3]; }
};

// The order of a piece's planes in memory, so that those of a kind lie side by side.
inline constexpr std::array<Plane, kPlanes> kPieceOrder{kKData, kVData, kKMeta, kVMeta};

// Consecutive units of all heads, in the host's memory until the next visit returns.
struct Piece {
  int64_t first_unit, units;
  std::array<const std::byte*, kPlanes> base;  // head 0's first unit
  // Bytes; the units of a head lie one behind the other, and so do heads.
  std::array<int64_t, kPlanes> head_stride;
  // The planes follow each other in kPieceOrder. Otherwise V's codes follow K's, and V's metadata follows K's.
  bool one_block = false;
};
using PieceVisitor = std::function<void(size_t index, const Piece& piece)>;
// Pieces [first, first + count) of all that a visit would see, in their order.
struct PieceRange {
  int64_t first = 0, count = std::numeric_limits<int64_t>::max();
  bool has(int64_t piece) const { return piece >= first && piece - first < count; }
};
// Does a little of some other work; false where none is left.
using OtherWork = std::function<bool()>;

// One sequence's layer that an append is about to write.
struct Growth {
  int sequence;
  int64_t first;  // units [first, units) may be written; first < used where rows are overwritten
  int64_t used;   // units [0, used) hold data
  int64_t units;
};

// A handle on a block of rows of all layers, apart from sequences: the block is not freed as long as this lives. It lives
// no longer than its cache.
using SharedBlock = std::shared_ptr<const void>;

// Why blocks of `rows` rows cannot hold units of `unit_rows`, or empty if they can. `what`: "a block", "a chunk".
std::string group_straddles(const std::string& what, int64_t rows, int64_t unit_rows);

// A span over `rows` rows of consecutive units: the first at `base`, unit u of plane p at base + u *
// stride[p].
Span make_span(const UnitLayout& unit, const std::array<const std::byte*, kPlanes>& base,
               const std::array<int64_t, kPlanes>& unit_stride, int64_t rows);

}  // namespace kv
