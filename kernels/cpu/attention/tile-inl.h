// Locates a tile's rows. Private to kernels/cpu; compiled once a target, since the compiler vectorises over
// the pointers.
#if defined(KV_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_TILE_INL_H_
#undef KV_TILE_INL_H_
#else
#define KV_TILE_INL_H_
#endif

#include <algorithm>

#include <hwy/highway.h>

#include "kernels/cpu/attention/tile.h"
#include "kernels/cpu/attributes-inl.h"
#include "kernels/format/encoding.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Scales are few and far from their codes: with blocks in any order each is a cache miss of its own. They are
// therefore prefetched when a tile is located, a tile ahead.
[[gnu::always_inline]] inline void prefetch(const std::byte* meta, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(meta + at);
}

// Rows [first, first + count) of a span's side, as rows [at, at + count) of the tile.
inline void locate_side(const Side& side, int head_dim, int64_t first, int count, int at, TileSide& out) {
  const int group = side.encoding.group;
  if (group == 1) {
    const std::byte* row = side.data + first * side.stride;
    for (int i = 0; i < count; ++i) out.row[at + i] = row + i * side.stride;
    if (!side.meta) return;
    const std::byte* meta = side.meta + first * side.meta_stride;
    prefetch(meta, count * side.meta_stride);
    for (int i = 0; i < count; ++i) out.meta[at + i] = meta + i * side.meta_stride;
    return;
  }
  const int64_t row_bytes = unit_data_bytes(side.encoding, head_dim) / group;
  for (int done = 0; done < count;) {
    const int64_t unit = (first + done) / group, begin = (first + done) % group;
    const int take = static_cast<int>(std::min<int64_t>(count - done, group - begin));
    const std::byte* row = side.data + unit * side.stride + begin * row_bytes;
    const std::byte* meta = side.meta + unit * side.meta_stride;
    prefetch(meta, unit_meta_bytes(side.encoding, head_dim));
    for (int i = at + done; i < at + done + take; ++i, row += row_bytes) {
      out.row[i] = row;
      out.meta[i] = meta;
    }
    done += take;
  }
}

// Fills the tile with the next `rows` rows and moves the cursor past them.
inline void locate_tile(std::span<const Span> spans, int head_dim, SpanCursor& at, int rows, Tile& tile) {
  tile.rows = tile.runs = tile.pieces = 0;
  while (tile.rows < rows) {
    const Span& span = spans[at.span];
    const int take = static_cast<int>(std::min<int64_t>(rows - tile.rows, span.rows - at.row));
    if (take > 0) {
      locate_side(span.k, head_dim, at.row, take, tile.rows, tile.k);
      locate_side(span.v, head_dim, at.row, take, tile.rows, tile.v);
      Run* last = tile.runs ? &tile.run[tile.runs - 1] : nullptr;
      if (last && last->k == span.k.encoding && last->v == span.v.encoding) {
        last->count += take;
      } else {
        tile.run[tile.runs++] = {tile.rows, take, span.k.encoding, span.v.encoding};
      }
      tile.rows += take;
      tile.piece_end[tile.pieces++] = tile.rows;
      at.row += take;
    }
    if (at.row == span.rows) at = {at.span + 1, 0};
  }
}

constexpr int kRowPadding = 16;  // rows that a loop may look at past the last
constexpr int kPaddedRows = kTileRows + kRowPadding;

// The pointers of rows [count], with copies of the last one behind them where a loop would look further: by kRowPadding, or up
// to `padded` in all.
inline const std::byte* const* pad_rows(const std::byte* const* rows, int count, const std::byte** scratch,
                                        int padded = 0) {
  if (count % kRowPadding == 0 && count >= padded) return rows;
  std::copy_n(rows, count, scratch);
  std::fill(scratch + count, scratch + std::max(count + kRowPadding, padded), rows[count - 1]);
  return scratch;
}

// The sums that loops over values hold at once: half as many as there are registers.
template <class D>
constexpr int kSumsAtOnce = hn::MaxLanes(D()) == 16 ? 16 : 8;

// The register blocks that `queries` queries are split into.
inline int query_blocks(int queries) { return queries / 4 + queries % 4 / 2 + queries % 2; }

// Calls block(std::integral_constant<int, n>(), r) for each block of n queries from the r-th on.
template <class Block>
HWY_INLINE void for_query_blocks(int queries, Block block) {
  int r = 0;
  for (; r + 4 <= queries; r += 4) block(std::integral_constant<int, 4>(), r);
  for (; r + 2 <= queries; r += 2) block(std::integral_constant<int, 2>(), r);
  for (; r < queries; ++r) block(std::integral_constant<int, 1>(), r);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
