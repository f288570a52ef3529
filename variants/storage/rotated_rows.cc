// Keys are decoded and rotated in one f32 copy of all views; queries in another.
#include "variants/storage/rotated_rows.h"

#include <algorithm>
#include <numeric>

#include "kernels/encode.h"
#include "kernels/threads.h"
#include "variants/core/scratch.h"

namespace kv {
namespace {

int64_t rows_of(std::span<const Span> view) {
  return std::accumulate(view.begin(), view.end(), int64_t{0},
                         [](int64_t sum, const Span& span) { return sum + span.rows; });
}

}  // namespace

void RotatedRows::rotate_keys(std::span<std::span<const Span>> views,
                              std::span<const Retention* const> heads) {
  int64_t rows = 0, longest = 0;
  size_t spans = 0;
  for (const auto& view : views) {
    rows += rows_of(view);
    longest = std::max(longest, rows_of(view));
    spans += view.size();
  }
  fit_angles(longest);
  const int64_t row_bytes = head_dim_ * static_cast<int64_t>(sizeof(float));
  auto* to = reinterpret_cast<float*>(fit(memory_, keys_, static_cast<size_t>(rows * row_bytes)));
  std::vector<float*> starts;
  for (const auto& view : views) {
    starts.push_back(to);
    to += rows_of(view) * head_dim_;
  }
#pragma omp parallel for schedule(static) if (worth_threads(rows * head_dim_, kParallelElements))
  for (size_t i = 0; i < views.size(); ++i) rotate_view(views[i], *heads[i], starts[i]);

  spans_.clear();
  spans_.reserve(spans);  // views point into it
  for (size_t i = 0; i < views.size(); ++i) {
    const size_t first = spans_.size();
    for (const Span& span : views[i]) {
      spans_.push_back({.k = {.data = reinterpret_cast<const std::byte*>(starts[i]), .stride = row_bytes},
                        .v = span.v,
                        .rows = span.rows});
      starts[i] += span.rows * head_dim_;
    }
    views[i] = std::span(spans_).subspan(first);
  }
}

void RotatedRows::rotate_view(std::span<const Span> view, const Retention& head, float* to) const {
  int64_t row = 0;
  for (const Span& span : view) {
    decode_rows(span.k, head_dim_, 0, span.rows, to + row * head_dim_);
    row += span.rows;
  }
  int64_t position = 0;
  for (const int64_t slot : head.oldest_first()) {
    float* key = to + slot * head_dim_;
    rotate(rope_.pairs, head_dim_, angles(position++), key, key);
  }
}

std::vector<int32_t> RotatedRows::positions(const Retention& head) {
  const std::vector<int64_t> order = head.oldest_first();
  std::vector<int32_t> positions(order.size());
  for (size_t position = 0; position < order.size(); ++position)
    positions[static_cast<size_t>(order[position])] = static_cast<int32_t>(position);
  return positions;
}

std::span<const float> RotatedRows::angles_of(int64_t positions) {
  fit_angles(positions);
  return {angles(0), static_cast<size_t>(positions_ * head_dim_)};
}

std::vector<const float*> RotatedRows::rotate_queries(std::span<const Queries> queries, int heads) {
  int64_t rows = 0;
  for (const Queries& in : queries) rows += heads * in.n;
  auto* to =
      reinterpret_cast<float*>(fit(memory_, queries_, static_cast<size_t>(rows * head_dim_) * sizeof(float)));
  std::vector<const float*> rotated;
  for (const Queries& in : queries) {
    rotated.push_back(to);
    for (int64_t row = 0; row < heads * in.n; ++row, to += head_dim_)
      rotate(rope_.pairs, head_dim_, angles(in.first_position + row % in.n), in.q + row * head_dim_, to);
  }
  return rotated;
}

void RotatedRows::fit_angles(int64_t positions) {
  if (positions <= positions_) return;
  const size_t position_bytes = static_cast<size_t>(head_dim_) * sizeof(float);
  positions_ = 0;
  fit(memory_, angles_, static_cast<size_t>(positions) * position_bytes);
  positions_ = static_cast<int64_t>(angles_.size() / position_bytes);
  auto* to = reinterpret_cast<float*>(angles_.data());
  for (int64_t position = 0; position < positions_; ++position)
    rope_angles(rope_, head_dim_, position, to + position * head_dim_);
}

}  // namespace kv
