// Row r of a head lies at r if it is one of the first, else behind those at r - first modulo the ring's rows.
#include "variants/storage/residual_buffer.h"

#include <algorithm>
#include <functional>

#include "kernels/encode.h"
#include "kernels/format/encoding.h"

namespace kv {
namespace {
constexpr Encoding kRaw{.format = Format::kF16, .bits = 16};

int64_t mean_bytes(const Codec& codec, int heads, int head_dim) {
  return codec.mean_rows > 0 ? heads * head_dim * static_cast<int64_t>(sizeof(float)) : 0;
}
}  // namespace

UnitLayout ResidualBuffer::layout(int head_dim, bool latent) {
  const int64_t row = unit_data_bytes(kRaw, head_dim), v = latent ? 0 : row;
  return {.rows = 1, .bytes = {row, 0, v, 0}, .k = kRaw, .v = kRaw, .stride = {row, 0, v, 0}};
}

int64_t ResidualBuffer::ring_rows(const Codec& codec) {
  const RowUnits units = codec.units();
  return waits(codec) ? units.waiting + units.rows : 0;
}

int64_t ResidualBuffer::row_bytes(int heads, int head_dim, bool latent) {
  return (latent ? 1 : 2) * heads * unit_data_bytes(kRaw, head_dim);
}

int64_t ResidualBuffer::bytes(const Codec& codec, int heads, int head_dim, bool latent) {
  return (codec.first + ring_rows(codec)) * row_bytes(heads, head_dim, latent) +
         mean_bytes(codec, heads, head_dim);
}

ResidualBuffer::ResidualBuffer(const Codec& codec, const UnitRing& ring, int heads, int head_dim, bool latent,
                               Memory& memory)
    : codec_(codec),
      units_(codec.units()),
      places_(ring),
      heads_(heads),
      head_dim_(head_dim),
      latent_(latent),
      ring_(ring_rows(codec)),
      block_(Block::of_rows(memory,
                            static_cast<size_t>((codec.first + ring_) * row_bytes(heads, head_dim, latent)),
                            ByteKind::kPayload)),
      means_(memory, static_cast<size_t>(mean_bytes(codec, heads, head_dim)), ByteKind::kMetadata) {}

ResidualBuffer ResidualBuffer::clone(Memory& memory) const {
  ResidualBuffer copy(codec_, places_, heads_, head_dim_, latent_, memory);
  copy.rows_ = rows_;
  copy.first_raw_ = first_raw_;
  memory.copy(copy.block_.data(), block_.data(), block_.size());
  std::copy_n(means_.data(), means_.size(), copy.means_.data());
  return copy;
}

void ResidualBuffer::advance(int64_t rows) {
  rows_ = rows;
  if (waits(codec_)) first_raw_ = std::max(first_raw_, rows - codec_.first - ring_);
}

// The first number of rows of which so many are encoded; a mean that was subtracted stays so.
int64_t ResidualBuffer::earliest() const {
  if (first_raw_ == 0) return rows_ < codec_.mean_rows ? 0 : codec_.mean_rows;
  return units_.first + units_.waiting + (first_raw_ + units_.rows - 1) / units_.rows * units_.rows;
}

int64_t ResidualBuffer::newest_begin() const {
  return waits(codec_) ? std::min(rows_, units_.first + units_.encoded(rows_) * units_.rows) : rows_;
}

std::byte* ResidualBuffer::at(int head, int64_t row, bool v) const {
  const int64_t place = row < codec_.first ? row : codec_.first + (row - codec_.first) % ring_;
  return block_.data() + ((v && !latent_ ? heads_ + head : head) * (codec_.first + ring_) + place) *
                             unit_data_bytes(kRaw, head_dim_);
}

void ResidualBuffer::remove_mean(int head) {
  const int64_t rows = codec_.mean_rows;
  std::vector<float> keys(static_cast<size_t>(rows * head_dim_));
  for (int64_t row = 0; row < rows; ++row)
    decode_row(kRaw, head_dim_, at(head, row, false), nullptr, 0, keys.data() + row * head_dim_);
  float* mean = mean_of(head);
  for (int i = 0; i < head_dim_; ++i) {
    double sum = 0.0;  // exact for f16, so the order is free
    for (int64_t row = 0; row < rows; ++row) sum += static_cast<double>(keys[row * head_dim_ + i]);
    mean[i] = static_cast<float>(sum / static_cast<double>(rows));
  }
  for (int64_t row = 0; row < rows; ++row) {
    float* key = keys.data() + row * head_dim_;
    for (int i = 0; i < head_dim_; ++i) key[i] -= mean[i];
    encode_unit(kRaw, head_dim_, key, at(head, row, false), nullptr);
  }
}

const float* ResidualBuffer::without_mean(int head, int64_t row, const float* key, float* to) const {
  if (row < codec_.mean_rows) return key;
  std::transform(key, key + head_dim_, mean_of(head), to, std::minus<float>());
  return to;
}

std::span<const float> ResidualBuffer::mean(int head) const {
  if (codec_.mean_rows == 0 || rows_ < codec_.mean_rows) return {};
  return {mean_of(head), static_cast<size_t>(head_dim_)};
}

void ResidualBuffer::get(int head, int64_t first, int64_t n, float* k, float* v) const {
  for (int64_t i = 0; i < n; ++i) {
    decode_row(kRaw, head_dim_, at(head, first + i, false), nullptr, 0, k + i * head_dim_);
    decode_row(kRaw, head_dim_, at(head, first + i, true), nullptr, 0, v + i * head_dim_);
  }
}

template <class Visit>
void ResidualBuffer::for_each_row(Visit visit) const {
  const auto visit_sides = [&](int head, int64_t row) {
    visit(at(head, row, false));
    if (!latent_) visit(at(head, row, true));
  };
  for (int head = 0; head < heads_; ++head) {
    for (int64_t row = 0; row < first_rows(); ++row) visit_sides(head, row);
    for (int64_t row = newest_begin(); row < rows_; ++row) visit_sides(head, row);
  }
}

void ResidualBuffer::save(Writer& to) const {
  const auto bytes = static_cast<size_t>(unit_data_bytes(kRaw, head_dim_));
  for_each_row([&](const std::byte* row) { to.write(row, bytes); });
  if (!mean(0).empty()) to.write(means_.data(), means_.size());
}

void ResidualBuffer::load(Reader& from) {
  const auto bytes = static_cast<size_t>(unit_data_bytes(kRaw, head_dim_));
  for_each_row([&](std::byte* row) { from.read(row, bytes); });
  if (!mean(0).empty()) from.read(means_.data(), means_.size());
  if (waits(codec_)) first_raw_ = units_.encoded(rows_) * units_.rows;
}

Span ResidualBuffer::span_of(int head, int64_t row, int64_t rows) const {
  const int64_t row_bytes = unit_data_bytes(kRaw, head_dim_);
  return {.k = {.data = at(head, row, false), .stride = row_bytes, .encoding = kRaw},
          .v = {.data = at(head, row, true), .stride = row_bytes, .encoding = kRaw},
          .rows = rows};
}

void ResidualBuffer::first_span(int head, SpanList& out) const {
  if (first_rows() > 0) out.push_back(span_of(head, 0, first_rows()));
}

void ResidualBuffer::newest_spans(int head, SpanList& out) const {
  for (int64_t row = newest_begin(); row < rows_;) {
    const int64_t count = std::min(rows_ - row, ring_ - (row - codec_.first) % ring_);
    out.push_back(span_of(head, row, count));
    row += count;
  }
}

}  // namespace kv
