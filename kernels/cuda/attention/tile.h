// Tiles of encoded rows on their way through shared memory: what a warp of decode.h reads, and its ring of
// asynchronous copies.
#pragma once

#include "kernels/cuda/attention/words.h"

namespace kv::cuda {

// What a tile of rows takes in shared memory.
template <class K, class V, int kHeadDim>
struct TileShape {
  static constexpr int kKBytes = kHeadDim * K::kBits / 8, kVBytes = kHeadDim * V::kBits / 8;  // of a row
  static constexpr int kKMeta = K::meta_bytes(kHeadDim), kVMeta = V::meta_bytes(kHeadDim);
  static constexpr int kUnitMeta = K::kScaling == Scaling::kChannel ? 4 * kHeadDim : 0;

  // About 4 KiB of rows, and at most a row a lane; at least what tensor cores take at once, where they serve.
  static constexpr int fit(int rows) { return rows >= 32 ? 32 : rows >= 16 || K::kBits <= 16 ? 16 : 8; }
  // Where a tile has scales for long queries, half as many, for which the registers are enough.
  static constexpr int kRows = kUnitMeta > 512 ? 16 : fit(4096 / (kKBytes + kVBytes));

  static constexpr int kVAt = kRows * kKBytes;
  static constexpr int kKMetaAt = kVAt + kRows * kVBytes;
  static constexpr int kVMetaAt = kKMetaAt + kRows * kKMeta;
  static constexpr int kUnitMetaAt = kVMetaAt + kRows * kVMeta;
  static constexpr int kBytes = kUnitMetaAt + kUnitMeta;
  static_assert(kKBytes % 16 == 0 && kVBytes % 16 == 0 && kBytes % 16 == 0);
  static_assert(kKMetaAt % 16 == 0 && kVMetaAt % 16 == 0 && kUnitMetaAt % 16 == 0);

  // Enough to keep memory busy, and not more shared memory than the blocks that an SM's registers allow can have.
  static constexpr int kStages = kBytes >= 16384 ? 2 : 3;
};

// Where a tile has a row's byte. Long rows begin at the same bank of shared memory, and lanes read the same
// part of several at once; so the 16-byte chunks of a row are swizzled by its number.
template <int kRowBytes>
KV_DEVICE int tile_offset(int row, int byte) {
  const int swizzle = kRowBytes >= 128 ? row % 8 : 0;
  return row * kRowBytes + ((byte / 16 ^ swizzle) * 16 | byte % 16);
}

// Words [first, first + kCount) of a row, in one read; `first` is a multiple of kCount, which is 1, 2 or 4.
template <int kRowBytes, int kCount>
KV_DEVICE void read_words(const std::byte* rows, int row, int first, uint32_t (&word)[kCount]) {
  const std::byte* from = rows + tile_offset<kRowBytes>(row, 4 * first);
  if constexpr (kCount == 4) {
    const uint4 all = simt::read<uint4>(from);
    word[0] = all.x, word[1] = all.y, word[2] = all.z, word[3] = all.w;
  } else if constexpr (kCount == 2) {
    const uint2 both = simt::read<uint2>(from);
    word[0] = both.x, word[1] = both.y;
  } else {
    word[0] = simt::read<uint32_t>(from);
  }
}

template <class K, class V, int kHeadDim>
struct TileRing {
  using Shape = TileShape<K, V, kHeadDim>;

  std::byte* ring;  // [kStages, Shape::kBytes] of this warp alone
  const Layout& layout;
  const Page* pages;
  int end;  // rows from here on are not read: the tile's first stands in their place

  KV_DEVICE const std::byte* tile(int stage) const { return ring + stage * Shape::kBytes; }

  // All lanes; rows [first, first + kRows). Lane r finds out where row r is.
  KV_DEVICE void issue(int stage, int first) const {
    std::byte* to = ring + stage * Shape::kBytes;
    const int rows = end - first;
    const int own = simt::lane() < rows && simt::lane() < Shape::kRows ? simt::lane() : 0;
    const Page row = row_at(first + own);
    copy_rows<Shape::kKBytes>(to, row.k);
    copy_rows<Shape::kVBytes>(to + Shape::kVAt, row.v);
    if (Shape::kRows == simt::kWarp || simt::lane() < Shape::kRows) {
      const int lane = simt::lane();
      if constexpr (Shape::kKMeta > 0) {
        simt::copy_async<Shape::kKMeta>(to + Shape::kKMetaAt + lane * Shape::kKMeta, row.k_meta);
      }
      if constexpr (Shape::kVMeta > 0) {
        simt::copy_async<Shape::kVMeta>(to + Shape::kVMetaAt + lane * Shape::kVMeta, row.v_meta);
      }
    }
    if constexpr (Shape::kUnitMeta > 0) copy_unit_meta(to + Shape::kUnitMetaAt, row.k_meta);
  }

 private:
  // Where a row lies, as locate() has it, without what the formats settle: a unit is a group of K's, or one row.
  KV_DEVICE Page row_at(int row) const {
    int unit = row, in_unit = 0;
    if constexpr (K::kScaling == Scaling::kChannel) {
      unit = layout.unit_rows.quotient(row);
      in_unit = row - unit * layout.unit_rows;
    }
    const auto [page, index] = place_of(layout, pages, unit);
    return {page->k + int64_t{index} * layout.k.data_stride + in_unit * Shape::kKBytes,
            page->k_meta + int64_t{index} * layout.k.meta_stride + in_unit * Shape::kKMeta,
            page->v + int64_t{index} * layout.v.data_stride + in_unit * Shape::kVBytes,
            page->v_meta + int64_t{index} * layout.v.meta_stride + in_unit * Shape::kVMeta};
  }

  template <int kRowBytes>
  KV_DEVICE static void copy_rows(std::byte* to, const std::byte* own_row) {
    constexpr int kChunks = kRowBytes / 16;
    static_assert(Shape::kRows * kChunks % simt::kWarp == 0);
    const auto address = reinterpret_cast<uint64_t>(own_row);
    KV_UNROLL
    for (int i = 0; i < Shape::kRows * kChunks / simt::kWarp; ++i) {
      const int chunk = i * simt::kWarp + simt::lane(), row = chunk / kChunks, byte = chunk % kChunks * 16;
      const auto from = reinterpret_cast<const std::byte*>(simt::shuffle(address, row));
      simt::copy_async<16>(to + tile_offset<kRowBytes>(row, byte), from + byte);
    }
  }

  // A tile lies in one group, so every lane's row has the same.
  KV_DEVICE static void copy_unit_meta(std::byte* to, const std::byte* from) {
    for (int chunk = simt::lane(); chunk < Shape::kUnitMeta / 16; chunk += simt::kWarp) {
      simt::copy_async<16>(to + chunk * 16, from + chunk * 16);
    }
  }
};

}  // namespace kv::cuda
