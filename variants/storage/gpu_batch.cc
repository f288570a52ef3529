// Spans to pages, pages to work items, work items to the order in which pieces come.
#include "variants/storage/gpu_batch.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "kernels/format/encoding.h"

namespace kv {
namespace {

constexpr Encoding kRaw{.format = Format::kF16, .bits = 16};

// A span's side as pages see it: `unit_rows` rows of it are one unit, of one or several of its own.
cuda::SideLayout side_layout(const Side& side, int32_t unit_rows) {
  const int32_t inner = unit_rows / side.encoding.group;
  const auto stride = static_cast<int32_t>(side.stride), meta_stride = static_cast<int32_t>(side.meta_stride);
  return {side.encoding, stride, meta_stride, stride * inner, meta_stride * inner};
}

// Rows that lie one behind the other.
cuda::Layout dense_layout(const Encoding& k, const Encoding& v, int head_dim, int32_t page_rows) {
  const auto side = [&](const Encoding& e) {
    return Side{.data = nullptr,
                .meta = nullptr,
                .stride = unit_data_bytes(e, head_dim),
                .meta_stride = unit_meta_bytes(e, head_dim),
                .encoding = e};
  };
  cuda::Layout layout = layout_of({.k = side(k), .v = side(v)}, head_dim);
  layout.page_units = page_rows / layout.unit_rows;
  return layout;
}

// The page that begins at `unit` of the span.
cuda::Page page_at(const Span& span, const cuda::Layout& layout, int64_t unit) {
  const auto at = [&](const std::byte* base, int64_t stride) {
    return base ? const_cast<std::byte*>(base) + unit * stride : nullptr;
  };
  return {at(span.k.data, layout.k.data_stride), at(span.k.meta, layout.k.meta_stride),
          at(span.v.data, layout.v.data_stride), at(span.v.meta, layout.v.meta_stride)};
}

int32_t rows_of(std::span<const Span> spans) {
  int64_t rows = 0;
  for (const Span& span : spans) rows += span.rows;
  return static_cast<int32_t>(rows);
}

}  // namespace

cuda::Layout layout_of(const Span& span, int head_dim) {
  const int32_t unit = std::max<int32_t>(span.k.encoding.group, span.v.encoding.group);
  return {.k = side_layout(span.k, unit),
          .v = side_layout(span.v, unit),
          .head_dim = head_dim,
          .unit_rows = unit,
          .page_units = 1};
}

GpuBatch::GpuBatch(std::span<const HeadQueries> from, const Codec& codec, int head_dim,
                   std::vector<int64_t> rows_in_pieces, int heads_of_input, bool through_copies)
    : copies(through_copies), heads(heads_of_input), streamed_rows(std::move(rows_in_pieces)) {
  find_layouts(from, codec, head_dim);
  plan.layout = copies ? dense_layout({}, {}, head_dim, kPieceRows) : encoded;
  plan.tail = raw;
  plan.head_dim = head_dim;
  plan.group = from.front().group;
  for (size_t i = 0; i < from.size(); ++i) add(from[i], streamed_of(static_cast<int>(i)), codec);
}

// The pages' rows are those of the longest first span: where a list has several spans, all but the last are
// that long. Pieces are pages too.
void GpuBatch::find_layouts(std::span<const HeadQueries> from, const Codec& codec, int head_dim) {
  raw = dense_layout(kRaw, kRaw, head_dim, static_cast<int32_t>(codec.unit_rows()));
  encoded = raw;
  int64_t page_rows = 0;
  const bool in_pieces =
      std::any_of(streamed_rows.begin(), streamed_rows.end(), [](int64_t rows) { return rows > 0; });
  if (in_pieces) {
    page_rows = kPieceRows;
    encoded = dense_layout(codec.k, codec.v, head_dim, kPieceRows);
  }
  for (const HeadQueries& p : from) {
    if (p.spans.empty()) continue;
    const Span& first = p.spans.front();
    if (first.k.encoding != codec.k || first.v.encoding != codec.v || first.rows <= page_rows) continue;
    page_rows = first.rows;
    encoded = layout_of(first, head_dim);
    encoded.page_units = static_cast<int32_t>((page_rows + encoded.unit_rows - 1) / encoded.unit_rows);
  }
}

// A problem's encoded rows are equal pages, and its raw ones, if there are any, pages of one unit's rows.
void GpuBatch::add(const HeadQueries& p, int64_t streamed, const Codec& codec) {
  const auto border = std::find_if(p.spans.begin(), p.spans.end(), [&](const Span& span) {
    return span.k.encoding != codec.k || span.v.encoding != codec.v;
  });
  const std::span<const Span> coded(p.spans.begin(), border), uncoded(border, p.spans.end());
  ResidentRows placed{.pages = {}, .residual = {}, .rows = rows_of(coded), .residual_rows = rows_of(uncoded)};
  for (size_t i = 0; i < coded.size(); ++i) {
    if (i + 1 < coded.size() && coded[i].rows != int64_t{encoded.page_units} * encoded.unit_rows) {
      throw std::logic_error("spans of unequal rows cannot be pages");
    }
    placed.pages.push_back(page_at(coded[i], encoded, 0));
  }
  for (const Span& span : uncoded) {
    for (int64_t row = 0; row < span.rows; row += raw.page_units)
      placed.residual.push_back(page_at(span, raw, row));
  }
  const int64_t queries = int64_t{p.group} * p.n, numbers = queries * encoded.head_dim;
  const auto all = static_cast<int32_t>(streamed + placed.all());
  const int32_t tail_rows = copies ? 0 : placed.residual_rows;
  plan.problems.push_back({.q = nullptr,
                           .out = nullptr,
                           .pages = nullptr,
                           .tail = nullptr,
                           .rows = all - tail_rows,
                           .tail_rows = tail_rows,
                           .n = static_cast<int32_t>(p.n),
                           .visible = static_cast<int32_t>(p.visible),
                           .splits = 0,
                           .first_partial = 0,
                           .logits = nullptr});
  weights.push_back(p.attention_weights);
  outputs += numbers;
  if (p.attention_weights) logits += queries * all;
  most_rows = std::max(most_rows, all);
  resident.push_back(std::move(placed));
}

void GpuBatch::cut(const cuda::Gpu& gpu) {
  plan.cut(gpu);
  group_items();
}

void GpuBatch::group_items() {
  first_piece = {0};
  for (const int64_t rows : streamed_rows)
    first_piece.push_back(first_piece.back() + static_cast<size_t>(rows / kPieceRows));
  const size_t pieces = first_piece.back();
  // The last piece that an item needs, or -1.
  const auto last_piece = [&](const cuda::WorkItem& item) {
    const int64_t streamed = streamed_of(item.problem);
    if (item.of_tail || item.begin >= streamed) return int64_t{-1};
    return static_cast<int64_t>(first_piece[static_cast<size_t>(item.problem / heads)]) +
           (std::min<int64_t>(item.end, streamed) - 1) / kPieceRows;
  };
  std::vector<cuda::WorkItem>& all = plan.items[0];
  std::stable_sort(all.begin(), all.end(),
                   [&](const auto& a, const auto& b) { return last_piece(a) < last_piece(b); });
  piece_items.assign(pieces, {});
  int64_t widest = 1;
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t last = last_piece(all[i]);
    ItemRange& range = last < 0 ? resident_items : piece_items[static_cast<size_t>(last)];
    if (range.count++ == 0) range.first = i;
    if (last < 0) continue;
    const int64_t end = std::min<int64_t>(all[i].end, streamed_of(all[i].problem));
    widest = std::max(widest, (end - 1) / kPieceRows - all[i].begin / kPieceRows + 1);
  }
  slots = pieces > 0 ? static_cast<size_t>(widest + kPrefetchedPieces) : 0;
}

}  // namespace kv
