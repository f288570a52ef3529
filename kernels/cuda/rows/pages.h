// The rows of a (sequence, layer, KV head) on a GPU: pages of equally many rows, each at any address.
//
// Every placement's spans become pages: contiguous, concat and doubling have one page, segmented and tiered a page a chunk,
// paged a page a block. A ring is no special case: its slots do not move, and attention ignores their order. KIVI's raw tail is a
// second list of pages with its own layout. Reading a page entry costs 32 bytes: 0.4 % of a block of 16 f16 rows with
// head_dim 128.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/span.h"

namespace kv::cuda {

inline constexpr int kMaxGpuHeadDim = 256;  // the CPU's limit, kv::kMaxHeadDim, is higher

// K's codes, K's metadata, V's codes, V's metadata, each at the page's first unit.
struct alignas(16) Page {
  std::byte* k = nullptr;
  std::byte* k_meta = nullptr;
  std::byte* v = nullptr;
  std::byte* v_meta = nullptr;
};

// One side (K or V) of a cache's rows. A unit of the placement holds whole, contiguous units of the encoding.
struct SideLayout {
  Encoding encoding{};
  int32_t data_bytes = 0, meta_bytes = 0;    // a unit of the encoding
  int32_t data_stride = 0, meta_stride = 0;  // between units of the placement within a page
};

// A divisor that kernels use for every tile: a multiplication and a shift, exact for non-negative dividends (Granlund and
// Montgomery 1994, doi:10.1145/178243.178249).
class Divisor {
 public:
  constexpr Divisor(int32_t by) : by_(by), shift_(std::bit_width(static_cast<uint32_t>(by) - 1)) {
    multiplier_ = static_cast<uint32_t>(((uint64_t{1} << 31 << shift_) + static_cast<uint32_t>(by) - 1) /
                                        static_cast<uint32_t>(by));
  }
  KV_HD constexpr operator int32_t() const { return by_; }
  KV_HD int32_t quotient(int32_t n) const {
    const uint64_t product = uint64_t{2 * static_cast<uint32_t>(n)} * multiplier_;
    return static_cast<int32_t>(static_cast<uint32_t>(product >> 32) >> shift_);
  }

 private:
  int32_t by_, shift_;
  uint32_t multiplier_ = 0;
};

struct Layout {
  SideLayout k, v;
  int32_t head_dim = 0;   // a multiple of 8, at most kMaxGpuHeadDim
  Divisor unit_rows = 1;  // rows a unit of the placement
  Divisor page_units = 1;
};

struct UnitPlace {
  const Page* page;
  int32_t index;  // within the page
};

KV_HD inline UnitPlace place_of(const Layout& layout, const Page* pages, int32_t unit) {
  const int32_t page = layout.page_units.quotient(unit);
  return {pages + page, unit - page * layout.page_units};
}

// A row of one side: the encoding's unit with the row, and the row's index in the unit.
struct StoredRow {
  Encoding encoding;
  std::byte* data;
  std::byte* meta;
  int32_t row;
};

KV_HD inline StoredRow row_of(const SideLayout& side, std::byte* data, std::byte* meta, int32_t unit,
                              int32_t row) {
  const int32_t inner = row / side.encoding.group;
  return {.encoding = side.encoding,
          .data = data + int64_t{unit} * side.data_stride + int64_t{inner} * side.data_bytes,
          .meta = meta + int64_t{unit} * side.meta_stride + int64_t{inner} * side.meta_bytes,
          .row = row % side.encoding.group};
}

struct RowPair {
  StoredRow k, v;
};

KV_HD inline RowPair locate(const Layout& layout, const Page* pages, int32_t row) {
  const int32_t unit = layout.unit_rows.quotient(row), in_unit = row - unit * layout.unit_rows;
  const UnitPlace at = place_of(layout, pages, unit);
  return {row_of(layout.k, at.page->k, at.page->k_meta, at.index, in_unit),
          row_of(layout.v, at.page->v, at.page->v_meta, at.index, in_unit)};
}

// The same for `rows` (Problem or CopyJob), whose raw rows follow those of its pages.
template <class Rows>
KV_HD RowPair locate(const Layout& layout, const Layout& tail, const Rows& rows, int32_t row) {
  return row < rows.rows ? locate(layout, rows.pages, row) : locate(tail, rows.tail, row - rows.rows);
}

}  // namespace kv::cuda
