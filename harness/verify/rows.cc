#include "harness/verify/rows.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "kernels/encode.h"
#include "kernels/format/encoding.h"
#include "variants/cache/build.h"
#include "variants/cache/spec.h"
#include "variants/storage/residual_buffer.h"

namespace kv::verify {
namespace {

constexpr int64_t kChunk = 4096;  // tokens that are read at once

bool finite(std::span<const float> rows) {
  return std::all_of(rows.begin(), rows.end(), [](float x) { return std::isfinite(x); });
}

// Whether magnitudes up to `most` of both signs come back finite from a unit, however they lie in it.
bool holds(const Encoding& encoding, int head_dim, float most) {
  const int64_t rows = encoding.group;
  std::vector<float> unit(static_cast<size_t>(rows * head_dim)), decoded(unit.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < head_dim; ++i)
      unit[static_cast<size_t>(row * head_dim + i)] = (row + i) % 2 == 0 ? most : -most;
  }
  std::vector<std::byte> data(static_cast<size_t>(unit_data_bytes(encoding, head_dim)));
  std::vector<std::byte> meta(static_cast<size_t>(unit_meta_bytes(encoding, head_dim)));
  encode_unit(encoding, head_dim, unit.data(), data.data(), meta.data());
  const Side side{.data = data.data(), .meta = meta.data(), .encoding = encoding};
  decode_rows(side, head_dim, 0, rows, decoded.data());
  return finite(decoded);
}

// The magnitude from which on values are not held.
float limit_of(const Encoding& encoding, int head_dim) {
  float held = 1.0f, lost = std::numeric_limits<float>::max();
  for (float next; (next = held + (lost - held) / 2) > held && next < lost;)
    (holds(encoding, head_dim, next) ? held : lost) = next;
  return lost;
}

// The first row in a side of a span whose unit is not finite, or -1.
int64_t first_lost(const Side& side, int64_t rows, int head_dim) {
  std::vector<float> row(static_cast<size_t>(head_dim));
  for (int64_t i = 0; i < rows; ++i) {
    decode_rows(side, head_dim, i, 1, row.data());
    if (!finite(row)) return i;
  }
  return -1;
}

// A place that values of a side pass through.
struct Stored {
  Encoding encoding;
  const char* where;
};

// The rows of a unit share what overflowed: the largest of them is named.
std::string named(char side, std::span<const int64_t> tokens, const std::vector<float>& all, int head_dim,
                  std::span<const Stored> places) {
  const auto magnitude = [&](int64_t token) {
    float most = 0.0f;
    for (int i = 0; i < head_dim; ++i)
      most = std::max(most, std::abs(all[static_cast<size_t>(token * head_dim + i)]));
    return most;
  };
  const int64_t token = *std::max_element(tokens.begin(), tokens.end(),
                                          [&](int64_t a, int64_t b) { return magnitude(a) < magnitude(b); });
  const float most = magnitude(token);
  for (const Stored& place : places) {
    const float limit = limit_of(place.encoding, head_dim);
    if (most < limit) continue;
    char text[160];
    std::snprintf(text, sizeof text,
                  "%c of token %lld reaches %.7g, but %s%s holds only magnitudes below %.7g", side,
                  static_cast<long long>(token), static_cast<double>(most),
                  encoding_name(place.encoding).c_str(), place.where, static_cast<double>(limit));
    return text;
  }
  return "";  // not the codec's doing
}

}  // namespace

std::vector<HeadRows> read_heads(const workload::Workload& workload, int sequence, int layer, int64_t tokens,
                                 const std::vector<bool>& wanted) {
  const int heads = workload.shape().kv_heads, d = workload.shape().head_dim;
  std::vector<HeadRows> rows(static_cast<size_t>(heads));
  for (int h = 0; h < heads; ++h) {
    if (!wanted[static_cast<size_t>(h)]) continue;
    for (auto* to : {&rows[static_cast<size_t>(h)].k, &rows[static_cast<size_t>(h)].v})
      to->reserve(static_cast<size_t>(tokens * d));
  }
  std::vector<float> k(static_cast<size_t>(heads * std::min(kChunk, tokens) * d)), v(k.size());
  for (int64_t first = 0; first < tokens; first += kChunk) {
    const int64_t n = std::min(kChunk, tokens - first);
    workload.read(sequence, layer, first, n, nullptr, k.data(), v.data());
    for (int h = 0; h < heads; ++h) {
      if (!wanted[static_cast<size_t>(h)]) continue;
      HeadRows& to = rows[static_cast<size_t>(h)];
      to.k.insert(to.k.end(), k.begin() + h * n * d, k.begin() + (h + 1) * n * d);
      to.v.insert(to.v.end(), v.begin() + h * n * d, v.begin() + (h + 1) * n * d);
    }
  }
  return rows;
}

HeadRows pick(const HeadRows& all, std::span<const int64_t> tokens, int head_dim) {
  const int d = head_dim;
  HeadRows some;
  for (const int64_t t : tokens) {
    some.k.insert(some.k.end(), all.k.begin() + t * d, all.k.begin() + (t + 1) * d);
    some.v.insert(some.v.end(), all.v.begin() + t * d, all.v.begin() + (t + 1) * d);
  }
  return some;
}

HeadRows stored_rows(Cache& cache, SequenceId id, int layer, int kv_head) {
  const int d = cache.shape().head_dim;
  const std::vector<Span> spans = cache.spans(id, layer, kv_head);
  int64_t rows = 0;
  for (const Span& span : spans) rows += span.rows;
  HeadRows stored{std::vector<float>(static_cast<size_t>(rows * d)),
                  std::vector<float>(static_cast<size_t>(rows * d))};
  int64_t at = 0;
  for (const Span& span : spans) {
    decode_rows(span.k, d, 0, span.rows, stored.k.data() + at * d);
    decode_rows(span.v, d, 0, span.rows, stored.v.data() + at * d);
    at += span.rows;
  }
  return stored;
}

bool all_finite(const HeadRows& rows) { return finite(rows.k) && finite(rows.v); }

std::string overflow_of(Cache& cache, SequenceId id, int layer, int kv_head, const HeadRows& all) {
  const int d = cache.shape().head_dim;
  const std::vector<int64_t> kept = cache.kept(id, layer, kv_head);
  const bool buffered = ResidualBuffer::needed(codec_of(cache.spec()).make(cache.spec().codec));
  int64_t first = 0;  // of the span
  for (const Span& span : cache.spans(id, layer, kv_head)) {
    for (const bool is_v : {false, true}) {
      const Side& side = is_v ? span.v : span.k;
      const int64_t row = first_lost(side, span.rows, d);
      if (row < 0) continue;
      const int64_t unit = row / side.encoding.group * side.encoding.group,
                    rows = std::min<int64_t>(side.encoding.group, span.rows - unit);
      const std::span tokens(kept.data() + first + unit, static_cast<size_t>(rows));
      const Stored places[] = {{side.encoding, ""},
                               {{.format = Format::kF16, .bits = 16}, ", the residual buffer,"}};
      return named(is_v ? 'V' : 'K', tokens, is_v ? all.v : all.k, d, {places, size_t{1} + buffered});
    }
    first += span.rows;
  }
  return "";
}

std::unique_ptr<Cache> before_the_cut(const Cache& cache, const workload::Workload& workload, int sequence,
                                      int layer, int64_t tokens, memory::Ledger& ledger) {
  CacheShape shape = cache.shape();
  shape.layers = shape.max_sequences = 1;
  std::unique_ptr<Cache> uncut = build_cache(cache.spec(), shape, ledger);
  const SequenceId id = uncut->add_sequence();
  std::vector<float> k(static_cast<size_t>(shape.kv_heads * shape.head_dim)), v(k.size());
  for (int64_t t = 0; t < tokens; ++t) {
    workload.read(sequence, layer, t, 1, nullptr, k.data(), v.data());
    const StepInput in{.sequence = id, .n = 1, .k = k.data(), .v = v.data()};
    uncut->append(0, {&in, 1});
  }
  return uncut;
}

}  // namespace kv::verify
