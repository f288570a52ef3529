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

// Where a tile has a row's byte. Lanes read the same part of eight rows at once; so the 16-byte chunks of a row are
// swizzled, by its number, over the banks of shared memory.
template <int kRowBytes>
KV_DEVICE int tile_offset(int row, int byte) {
  constexpr int kLine = 128, kChunks = kRowBytes < kLine ? kRowBytes / 16 : 8;
  const int swizzle = (kRowBytes < kLine ? row / (kLine / kRowBytes) : row) % kChunks;
  return row * kRowBytes + ((byte / 16 ^ swizzle) * 16 | byte % 16);
}

// Of kRows rows, chunk `chunk` of 16 bytes (with 16 rows, that and the next) as operands of a product: word
// [rows / 8] is the lane's of rows [8n, 8n + 8), and then of the next chunk.
template <int kRows, int kRowBytes, bool kTransposed>
KV_DEVICE void load_chunk(const std::byte* rows, int chunk, uint32_t (&word)[4]) {
  static_assert(kRows == 16 || kRows == 32);
  const int row = simt::lane() % kRows, own = chunk + simt::lane() / kRows;
  simt::load_matrices<kTransposed>(rows + tile_offset<kRowBytes>(row, 16 * own), word);
}

// What is read at once: 1, 2 or 4.
template <int kCount>
struct alignas(4 * kCount) Words {
  uint32_t word[kCount];
};

// Words [first, first + kCount) of a row; `first` is a multiple of kCount.
template <int kCount, int kRowBytes>
KV_DEVICE Words<kCount> read_words(const std::byte* rows, int row, int first) {
  return simt::read<Words<kCount>>(rows + tile_offset<kRowBytes>(row, 4 * first));
}

template <class K, class V, int kHeadDim>
struct TileRing {
  using Shape = TileShape<K, V, kHeadDim>;
  static constexpr bool kInGroup = K::kScaling == Scaling::kChannel;

  std::byte* ring;  // [kStages, Shape::kBytes] of this warp alone
  const Layout& layout;
  const Page* pages;
  int last;  // rows behind this one do not count, and what lies there may be anything

  struct Place : UnitPlace {
    int row;  // of a group
  };

  // What a lane needs to know of the tile whose first row this is: of KIVI's keys where that row's unit is, since a tile
  // lies in one group; else where row r is, in lane r, a unit of these formats. It asks for the page, so that issue() need
  // not wait for it as long as memory takes. In place of rows beyond the last it finds that one.
  KV_DEVICE Place find(int first) const {
    const int row = simt::smaller(kInGroup ? first : first + simt::lane(), last);
    const int unit = kInGroup ? layout.unit_rows.quotient(row) : row;
    const UnitPlace place = place_of(layout, pages, unit);
    simt::prefetch(place.page);
    return {place, kInGroup ? row - unit * layout.unit_rows : 0};
  }

  // All lanes; a tile's rows to where it begins in the ring. A group's rows are next to each other; those behind
  // the last come, too.
  KV_DEVICE void issue(int at, const Place& place) const requires(kInGroup) {
    std::byte* const to = ring + at;
    const Page page = *place.page;
    // 32-bit offsets from the unit's begin, which compilers would make 64-bit ones of.
    const auto of_unit = [&](const std::byte* plane, int stride) {
      return simt::kept(plane + uint64_t{static_cast<uint32_t>(place.index)} * static_cast<uint32_t>(stride));
    };
    copy_run<Shape::kRows, Shape::kKBytes>(to, of_unit(page.k, layout.k.data_stride),
                                           place.row * Shape::kKBytes);
    copy_run<Shape::kRows, Shape::kVBytes>(to + Shape::kVAt, of_unit(page.v, layout.v.data_stride),
                                           place.row * Shape::kVBytes);
    copy_run<Shape::kRows * Shape::kVMeta / 16, 16>(
        to + Shape::kVMetaAt, of_unit(page.v_meta, layout.v.meta_stride), place.row * Shape::kVMeta);
    copy_run<Shape::kUnitMeta / 16, 16>(to + Shape::kUnitMetaAt, of_unit(page.k_meta, layout.k.meta_stride),
                                        0);
  }

  // Else they may be wherever their pages are.
  KV_DEVICE void issue(int at, const Place& place) const {
    std::byte* const to = ring + at;
    const int lane = simt::lane();
    const Page page = *place.page;
    const auto of_row = [&](std::byte* plane, int stride) { return plane + int64_t{place.index} * stride; };
    // All addresses before the first copy, past which compilers carry nothing.
    const Page row = {of_row(page.k, layout.k.data_stride), of_row(page.k_meta, layout.k.meta_stride),
                      of_row(page.v, layout.v.data_stride), of_row(page.v_meta, layout.v.meta_stride)};
    copy_rows<Shape::kKBytes>(to, row.k);
    copy_rows<Shape::kVBytes>(to + Shape::kVAt, row.v);
    if (Shape::kRows < simt::kWarp && lane >= Shape::kRows) return;
    copy_meta<Shape::kKMeta>(to + Shape::kKMetaAt, row.k_meta);
    copy_meta<Shape::kVMeta>(to + Shape::kVMetaAt, row.v_meta);
  }

 private:
  // Rows that lie one behind the other, from byte `first` of a unit on.
  template <int kRows, int kRowBytes>
  KV_DEVICE static void copy_run(std::byte* to, const std::byte* unit, int first) {
    const std::byte* from = unit + static_cast<uint32_t>(first + simt::lane() * 16);
    copy_chunks<kRows, kRowBytes>(to, [&](int i, int) { return from + i * simt::kWarp * 16; });
  }

  // kRows rows, each lane its chunks of 16 bytes: from(i, chunk) is where its i-th lies, number `chunk` of all.
  template <int kRows, int kRowBytes, class From>
  KV_DEVICE static void copy_chunks(std::byte* to, const From& from) {
    constexpr int kAll = kRows * kRowBytes / 16, kChunks = kRowBytes / 16;
    for (int i = 0; i < (kAll + simt::kWarp - 1) / simt::kWarp; ++i) {
      const int chunk = i * simt::kWarp + simt::lane();
      if (i >= kAll / simt::kWarp && chunk >= kAll) return;
      // Multiples of 8 rows on the swizzle is the same, so that the lane's chunks are equally far apart.
      const int like = kChunks <= 4 ? simt::lane() : chunk, apart = (chunk - like) * 16;
      const int at = tile_offset<kRowBytes>(like / kChunks, like % kChunks * 16) + apart;
      simt::copy_async<16>(to + at, from(i, chunk));
    }
  }

  template <int kRowBytes>
  KV_DEVICE static void copy_rows(std::byte* to, const std::byte* own_row) {
    constexpr int kChunks = kRowBytes / 16;
    static_assert(Shape::kRows * kChunks % simt::kWarp == 0);  // or not all lanes would meet
    const auto address = reinterpret_cast<uint64_t>(own_row);
    copy_chunks<Shape::kRows, kRowBytes>(to, [&](int, int chunk) {
      const auto row = reinterpret_cast<const std::byte*>(simt::shuffle(address, chunk / kChunks));
      return row + chunk % kChunks * 16;
    });
  }

  template <int kBytes>
  KV_DEVICE static void copy_meta(std::byte* to, const std::byte* own_row) {
    if constexpr (kBytes > 0) simt::copy_async<kBytes>(to + simt::lane() * kBytes, own_row);
  }
};

}  // namespace kv::cuda
