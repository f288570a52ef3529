#include "kernels/cpu/tile.h"

#include <algorithm>

#include "kernels/encoding.h"

namespace kv {
namespace {

// Scales are few and far from their codes: where blocks lie in any order each is a miss of its own, so that
// they are asked for when a tile is located, a tile before its turn.
[[gnu::always_inline]] inline void ask_for(const std::byte* meta, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(meta + at);
}

// Rows [first, first + count) of a span's side, as rows [at, at + count) of the tile.
void locate(const Side& side, int head_dim, int64_t first, int count, int at, TileSide& out) {
  const int group = side.encoding.group;
  if (group == 1) {
    const std::byte* row = side.data + first * side.stride;
    for (int i = at; i < at + count; ++i, row += side.stride) out.row[i] = row;
    const std::byte* meta = side.meta ? side.meta + first * side.meta_stride : nullptr;
    if (meta) ask_for(meta, count * side.meta_stride);
    for (int i = at; i < at + count; ++i, meta += side.meta ? side.meta_stride : 0) out.meta[i] = meta;
    return;
  }
  const int64_t row_bytes = unit_data_bytes(side.encoding, head_dim) / group;
  for (int i = 0; i < count; ++i) {
    const int64_t unit = (first + i) / group, row = (first + i) % group;
    out.row[at + i] = side.data + unit * side.stride + row * row_bytes;
    out.meta[at + i] = side.meta + unit * side.meta_stride;
    if (i == 0 || row == 0) ask_for(out.meta[at + i], unit_meta_bytes(side.encoding, head_dim));
  }
}

}  // namespace

void locate_tile(std::span<const Span> spans, int head_dim, SpanCursor& at, int rows, Tile& tile) {
  tile.rows = 0;
  tile.runs = 0;
  while (tile.rows < rows) {
    const Span& span = spans[at.span];
    const int take = static_cast<int>(std::min<int64_t>(rows - tile.rows, span.rows - at.row));
    if (take > 0) {
      locate(span.k, head_dim, at.row, take, tile.rows, tile.k);
      locate(span.v, head_dim, at.row, take, tile.rows, tile.v);
      Run* last = tile.runs ? &tile.run[tile.runs - 1] : nullptr;
      if (last && last->k == span.k.encoding && last->v == span.v.encoding) {
        last->count += take;
      } else {
        tile.run[tile.runs++] = {tile.rows, take, span.k.encoding, span.v.encoding};
      }
      tile.rows += take;
      at.row += take;
    }
    if (at.row == span.rows) at = {at.span + 1, 0};
  }
}

void decode_tile_rows(const TileSide& side, const Encoding& encoding, int head_dim, int first, int count,
                      float* out) {
  for (int i = first; i < first + count;) {
    // Rows of one unit are decoded together: a kChannel unit's scales serve them all.
    int same = 1;
    if (encoding.group > 1) {
      while (i + same < first + count && side.meta[i + same] == side.meta[i]) ++same;
    }
    const Side unit{.data = side.row[i], .meta = side.meta[i], .encoding = encoding};
    decode_rows(unit, head_dim, 0, same, out);
    out += int64_t{same} * head_dim;
    i += same;
  }
}

}  // namespace kv
