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
#include "variants/core/memory.h"
#include "variants/core/span_list.h"

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
  const UnitLayout* unit;                      // how they are stored
  std::array<const std::byte*, kPlanes> base;  // head 0's first unit
  // Bytes; the units of a head lie one behind the other, and so do heads.
  std::array<int64_t, kPlanes> head_stride;
  // The planes follow each other in kPieceOrder. Otherwise V's codes follow K's, and V's metadata follows K's.
  bool one_block = false;
};
// Rows [begin, end) of a head that lie in one piece.
struct PieceRows {
  int sequence, head;
  int64_t begin, end;
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
  // Units that a sequence being restored will have; 0 of one that grows. Restored units are stored as own_layout() says
  // at that length.
  int64_t restored = 0;
};

// A handle on a block of rows of all layers, apart from sequences: the block is not freed as long as this lives. It lives
// no longer than its cache.
using SharedBlock = std::shared_ptr<const void>;

// Placements whose older rows lie in slower tiers, where they may be stored otherwise.
class Tiers {
 public:
  // How a unit is stored at Placement::at(), if otherwise than by the cache's codec; else null.
  virtual const UnitLayout* own_layout(int sequence, int layer, int64_t unit) const = 0;
  // False where rows that are kept were encoded anew as they grew old, and would be among the newest again.
  virtual bool can_truncate(int sequence, int layer, int64_t units) const = 0;
  // Placement::trim() for units that may be written again, in two parts, so that all layers change or none: the returned
  // call cannot fail, and before it nothing changes. Throws std::bad_alloc or std::runtime_error where rows have to come
  // back from a slower memory and cannot.
  virtual std::function<void()> prepare_truncation(int sequence, int layer, int64_t units) = 0;

  // Units [0, this) are not in memory that kernels read: spans() leaves them out, at() does not reach them,
  // and they come as pieces of a multiple of kSplitRows rows.
  virtual int64_t streamed_units(int sequence, int layer) const = 0;
  // Visits the pieces of each sequence in order, prefetching the next ones; `index` is into `sequences`. While a piece is
  // on its way, does some of the other work, if there is any. Throws std::runtime_error where reading fails.
  virtual void stream(int layer, std::span<const int> sequences, const PieceVisitor& visit,
                      const OtherWork& meanwhile = nullptr, const PieceRange& range = {}) = 0;
  // Fetches some rows alone, of units of one row each -> out [wanted], which stay until the next call.
  virtual void fetch(int layer, std::span<const PieceRows> wanted, std::vector<Span>& out) = 0;

 protected:
  ~Tiers() = default;
};

// Placements of blocks that sequences can share.
class BlockSharing {
 public:
  virtual int64_t block_units() const = 0;
  // A block of an open sequence, whose units all hold data in every layer.
  virtual SharedBlock hold(int sequence, int64_t block) = 0;
  // The blocks begin a sequence that is open and empty.
  virtual void adopt(int sequence, std::span<const SharedBlock> blocks) = 0;

 protected:
  ~BlockSharing() = default;
};

class Placement {
 public:
  virtual ~Placement() = default;
  // Capabilities that few placements have, or null.
  virtual Tiers* tiers() { return nullptr; }
  virtual BlockSharing* sharing() { return nullptr; }
  // Blocks that are taken of a pool; 0 without one.
  virtual int64_t blocks_in_use() const { return 0; }

  // Sequence ids are small integers, chosen by the cache, reused after close().
  virtual void open(int sequence) = 0;
  virtual void close(int sequence) = 0;
  // `to` is open and empty; `units` [layers] are in use.
  virtual void fork(int from, int to, const std::vector<int64_t>& units) = 0;

  // Makes every growth's units writable, for all heads, or throws std::bad_alloc; stored rows stay as they were. One call
  // for a whole batch, so that a pool can refuse it before any of it is taken.
  virtual void reserve(int layer, std::span<const Growth> growths) = 0;
  virtual UnitAddress at(int sequence, int layer, int head, int64_t unit) = 0;
  // Units [i * this, (i + 1) * this) of a head lie at equal distances.
  virtual int64_t run_units() const { return std::numeric_limits<int64_t>::max(); }

  // Only the first `units` of `used` units still hold data: the room behind them is given back where the placement holds
  // no more than it uses, and memory allows the smaller copy. Never fails.
  virtual void trim(int sequence, int layer, int64_t used, int64_t units) = 0;
  // Moves rows together so that memory left by other sequences can be given back; returns the bytes moved. Stored rows
  // stay as they are. For placements whose memory comes in parts that several sequences share.
  virtual int64_t compact() { return 0; }

  // Called once before reading; a placement that reads through a copy makes it here.
  virtual void view(int /*sequence*/, int /*layer*/, int64_t /*units*/) {}
  // Copies of each head's rows that attention reads, each by an equal part of the head's queries: 1, or the group where
  // view() makes a copy for every query head.
  virtual int repeats() const { return 1; }
  // Appends the spans of rows [from, rows). `head` is one of the heads * repeats() that are read. `from` is 0 or the
  // first row of a span that was given out before.
  virtual void spans(int sequence, int layer, int head, int64_t from, int64_t rows, SpanList& out) = 0;
  // Changes when rows have moved, so that spans given out before are void. Appends leave it alone: all earlier spans but
  // the last stay as they are.
  virtual int64_t moves(int sequence, int layer) const = 0;
};

// The functions of Tiers, of placements that may have none.
inline int64_t streamed_units(Placement& placement, int sequence, int layer) {
  const Tiers* tiers = placement.tiers();
  return tiers ? tiers->streamed_units(sequence, layer) : 0;
}
inline const UnitLayout* own_layout(Placement& placement, int sequence, int layer, int64_t unit) {
  const Tiers* tiers = placement.tiers();
  return tiers ? tiers->own_layout(sequence, layer, unit) : nullptr;
}

// Why blocks of `rows` rows cannot hold units of `unit_rows`, or empty if they can. `what`: "a block", "a chunk".
std::string group_straddles(const std::string& what, int64_t rows, int64_t unit_rows);

// A span over `rows` rows of consecutive units: the first at `base`, unit u of plane p at base + u *
// stride[p].
Span make_span(const UnitLayout& unit, const std::array<const std::byte*, kPlanes>& base,
               const std::array<int64_t, kPlanes>& unit_stride, int64_t rows);

}  // namespace kv
