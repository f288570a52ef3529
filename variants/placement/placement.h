// Where a slot's bytes live. A placement stores opaque units of four planes and never looks inside them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/span.h"
#include "variants/memory.h"

namespace kv {

enum Plane { kKData, kKMeta, kVData, kVMeta, kPlanes };

// A unit: the rows that the codec encodes together, of one head. A side whose encoding has smaller groups
// stores several of its own units, one after the other, inside it.
struct UnitLayout {
  int64_t rows = 1;
  std::array<int64_t, kPlanes> bytes{};  // of one unit, by plane; 0 where the codec has no such plane
  Encoding k, v;
  std::array<int64_t, kPlanes> stride{};  // bytes between the encodings' own units inside a unit
};

struct UnitAddress {
  std::array<std::byte*, kPlanes> plane{};
};

struct PlacementContext {
  Memory* memory;
  int layers, heads;
  int64_t max_units;  // units that a sequence of the most tokens needs
  int max_sequences;
  UnitLayout unit;
};

class Placement {
 public:
  virtual ~Placement() = default;
  // Sequence ids are small integers, chosen by the cache, reused after close().
  virtual void open(int sequence) = 0;
  virtual void close(int sequence) = 0;
  // `to` is open and empty; `units` [layers] are in use.
  virtual void fork(int from, int to, const std::vector<int64_t>& units) = 0;

  // Makes units [0, units) of every head of (sequence, layer) writable, of which `used` hold data. Throws
  // std::bad_alloc; what is stored stays as it was.
  virtual void reserve(int sequence, int layer, int64_t used, int64_t units) = 0;
  virtual UnitAddress at(int sequence, int layer, int head, int64_t unit) = 0;

  // Of `used` units only the first `units` still hold data: what lay behind them is given back where the
  // placement holds no more than it uses.
  virtual void trim(int sequence, int layer, int64_t used, int64_t units) = 0;

  // Called once before reading; a placement that reads through a copy makes it here.
  virtual void view(int /*sequence*/, int /*layer*/, int64_t /*units*/) {}
  // Appends the spans of rows [0, rows).
  virtual void spans(int sequence, int layer, int head, int64_t rows, std::vector<Span>& out) = 0;
};

// A span over `rows` rows of consecutive units: the first at `base`, unit u of plane p at base + u *
// stride[p].
Span make_span(const UnitLayout& unit, const std::array<const std::byte*, kPlanes>& base,
               const std::array<int64_t, kPlanes>& unit_stride, int64_t rows);

}  // namespace kv
