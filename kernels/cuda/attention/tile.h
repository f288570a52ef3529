// Tiles of encoded rows in shared memory, which the warps of decode.h read, and a warp's ring of asynchronous copies.
#pragma once

#include "kernels/cuda/attention/words.h"

namespace kv::cuda {

// A tile's layout in shared memory.
template <class K, class V, int kHeadDim>
struct TileShape {
  static constexpr int kKBytes = kHeadDim * K::kBits / 8, kVBytes = kHeadDim * V::kBits / 8;  // a row
  static constexpr int kKMeta = K::meta_bytes(kHeadDim), kVMeta = V::meta_bytes(kHeadDim);
  static constexpr int kUnitMeta = K::kScaling == Scaling::kChannel ? 4 * kHeadDim : 0;

  // About 4 KiB of rows: at most a row a lane, and at least a tensor core's operand if one reads them.
  static constexpr int fit(int rows) { return rows >= 32 ? 32 : rows >= 16 || K::kBits <= 16 ? 16 : 8; }
  // Half as many rows if a tile has scales for long queries: registers suffice for those.
  static constexpr int kRows = kUnitMeta > 512 ? 16 : fit(4096 / (kKBytes + kVBytes));

  static constexpr int kVAt = kRows * kKBytes;
  static constexpr int kKMetaAt = kVAt + kRows * kVBytes;
  static constexpr int kVMetaAt = kKMetaAt + kRows * kKMeta;
  static constexpr int kUnitMetaAt = kVMetaAt + kRows * kVMeta;
  static constexpr int kBytes = kUnitMetaAt + kUnitMeta;
  static_assert(kKBytes % 16 == 0 && kVBytes % 16 == 0 && kBytes % 16 == 0);
  static_assert(kKMetaAt % 16 == 0 && kVMetaAt % 16 == 0 && kUnitMetaAt % 16 == 0);

  // Enough copies in flight for the bandwidth, with so little shared memory that registers alone limit the blocks an SM.
  static constexpr int kStages = kBytes >= 16384 ? 2 : 3;
};

// The offset of a row's byte in a tile. Lanes read the same part of eight rows at once, so a row's 16-byte chunks are swizzled
// by its number over the banks of shared memory.
template <int kRowBytes>
KV_DEVICE int tile_offset(int row, int byte) {
  constexpr int kLine = 128, kChunks = kRowBytes < kLine ? kRowBytes / 16 : 8;
  const int swizzle = (kRowBytes < kLine ? row / (kLine / kRowBytes) : row) % kChunks;
  return row * kRowBytes + ((byte / 16 ^ swizzle) * 16 | byte % 16);
}

// Loads chunk `chunk` of 16 bytes of kRows rows (of 16 rows also the next chunk) as operands of a product: word[n] is the
// lane's part of rows [8n, 8n + 8), then of the next chunk.
template <int kRows, int kRowBytes, bool kTransposed>
KV_DEVICE void load_chunk(const std::byte* rows, int chunk, uint32_t (&word)[4]) {
  static_assert(kRows == 16 || kRows == 32);
  const int row = simt::lane() % kRows, own = chunk + simt::lane() / kRows;
  simt::load_matrices<kTransposed>(rows + tile_offset<kRowBytes>(row, 16 * own), word);
}

// 1, 2 or 4 words that one instruction reads.
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

  std::byte* ring;  // [kStages, Shape::kBytes], this warp's own
  const Layout& layout;
  const Page* pages;
  int last;  // rows after this one do not count and may hold any bytes

  struct Place : UnitPlace {
    int row;  // within a group
  };

  // Finds the tile that begins with row `first`: for KIVI's keys the unit of that row, since a tile lies in one group; else in
  // lane r the place of row r, a unit of these formats. Prefetches the page, so that issue() does not wait for memory. Rows
  // after the last are replaced by the last.
  KV_DEVICE Place find(int first) const {
    const int row = simt::smaller(kInGroup ? first : first + simt::lane(), last);
    const int unit = kInGroup ? layout.unit_rows.quotient(row) : row;
    const UnitPlace place = place_of(layout, pages, unit);
    simt::prefetch(place.page);
    return {place, kInGroup ? row - unit * layout.unit_rows : 0};
  }

  // Copies a tile to offset `at` of the ring; all lanes call it. A group's rows are contiguous; rows after the last are copied
  // as well.
  KV_DEVICE void issue(int at, const Place& place) const requires(kInGroup) {
    std::byte* const to = ring + at;
    const Page page = *place.page;
    // Offsets from the unit's begin stay 32-bit; compilers would widen them to 64.
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

  // The same for rows whose pages may lie anywhere.
  KV_DEVICE void issue(int at, const Place& place) const {
    std::byte* const to = ring + at;
    const int lane = simt::lane();
    const Page page = *place.page;
    const auto of_row = [&](std::byte* plane, int stride) { return plane + int64_t{place.index} * stride; };
    // Computes all addresses before the first copy: compilers keep nothing in registers across it.
    const Page row = {of_row(page.k, layout.k.data_stride), of_row(page.k_meta, layout.k.meta_stride),
                      of_row(page.v, layout.v.data_stride), of_row(page.v_meta, layout.v.meta_stride)};
    copy_rows<Shape::kKBytes>(to, row.k);
    copy_rows<Shape::kVBytes>(to + Shape::kVAt, row.v);
    if (Shape::kRows < simt::kWarp && lane >= Shape::kRows) return;
    copy_meta<Shape::kKMeta>(to + Shape::kKMetaAt, row.k_meta);
    copy_meta<Shape::kVMeta>(to + Shape::kVMetaAt, row.v_meta);
  }

 private:
  // Copies contiguous rows from byte `first` of a unit on.
  template <int kRows, int kRowBytes>
  KV_DEVICE static void copy_run(std::byte* to, const std::byte* unit, int first) {
    const std::byte* from = unit + static_cast<uint32_t>(first + simt::lane() * 16);
    copy_chunks<kRows, kRowBytes>(to, [&](int i, int) { return from + i * simt::kWarp * 16; });
  }

  // Copies kRows rows, each lane its chunks of 16 bytes; from(i, chunk) is the address of its i-th, number `chunk` of all.
  template <int kRows, int kRowBytes, class From>
  KV_DEVICE static void copy_chunks(std::byte* to, const From& from) {
    constexpr int kAll = kRows * kRowBytes / 16, kChunks = kRowBytes / 16;
    // In the instance with the fewest registers left, sm_120 would spill offsets that it keeps from tile to tile.
    constexpr bool kKeepsNone = kHeadDim == 256 && kRowBytes == 256 && K::kBits != V::kBits;
    const int lane = kKeepsNone ? simt::kept(simt::lane()) : simt::lane();
    for (int i = 0; i < (kAll + simt::kWarp - 1) / simt::kWarp; ++i) {
      const int chunk = i * simt::kWarp + lane;
      if (i >= kAll / simt::kWarp && chunk >= kAll) return;
      // The swizzle repeats every 8 rows, so the lane's chunks are equally far apart.
      const int like = kChunks <= 4 ? lane : chunk, apart = (chunk - like) * 16;
      const int at = tile_offset<kRowBytes>(like / kChunks, like % kChunks * 16) + apart;
      simt::copy_async<16>(to + at, from(i, chunk));
    }
  }

  template <int kRowBytes>
  KV_DEVICE static void copy_rows(std::byte* to, const std::byte* own_row) {
    constexpr int kChunks = kRowBytes / 16;
    static_assert(Shape::kRows * kChunks % simt::kWarp == 0);  // every lane takes part in the shuffle
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
