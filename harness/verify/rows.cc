#include "harness/verify/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "harness/io/text.h"
#include "harness/math/random.h"
#include "harness/verify/reference/hadamard.h"
#include "harness/verify/verify.h"
#include "kernels/encode.h"
#include "kernels/format/encoding.h"
#include "kernels/hadamard.h"
#include "variants/cache/spec.h"
#include "variants/storage/residual_buffer.h"

namespace kv::verify {
namespace {

constexpr int64_t kChunk = 4096;                                   // tokens that are read at once
constexpr Encoding kResidual{.format = Format::kF16, .bits = 16};  // rows in a residual buffer

bool finite(std::span<const float> rows) {
  return std::all_of(rows.begin(), rows.end(), [](float x) { return std::isfinite(x); });
}

// True if magnitudes up to `most`, of both signs, come back finite from a unit in any arrangement.
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

// The smallest magnitude that the encoding cannot hold.
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

// Rotates rows as a cache of the codec does before encoding.
void rotate(Rotation rotation, int head_dim, std::vector<float>& rows) {
  const int64_t count = std::ssize(rows) / head_dim;
  if (rotation == Rotation::kRandom) flip_signs(rows.data(), count, head_dim);
  if (rotation != Rotation::kNone) hadamard_rows(rows.data(), count, head_dim, rows.data());
}

HeadRows before_encoding(HeadRows rows, const Spec& spec, int head_dim) {
  const Codec codec = codec_of(spec).make(spec.codec);
  rotate(codec.k_rotation, head_dim, rows.k);
  rotate(codec.v_rotation, head_dim, rows.v);
  return rows;
}

// Subtracts from these tokens' `keys` the codec's mean of the head's first keys. The first
// keys count as the residual buffer rounds them. `first_keys`: rotated.
void subtract_mean(const Codec& codec, int head_dim, const std::vector<float>& first_keys,
                   std::span<const int64_t> tokens, std::vector<float>& keys) {
  const auto d = static_cast<size_t>(head_dim), first = static_cast<size_t>(codec.mean_rows);
  if (first == 0 || first_keys.size() < first * d) return;
  const std::vector<float> raw = through_codec(kResidual, head_dim, first_keys);
  for (size_t i = 0; i < d; ++i) {
    double sum = 0.0;
    for (size_t row = first; row-- > 0;) sum += raw[row * d + i];
    const auto mean = static_cast<float>(sum / static_cast<double>(first));
    for (size_t row = 0; row < tokens.size(); ++row) {
      const auto token = static_cast<size_t>(tokens[row]);
      float& key = keys[row * d + i];
      key = (token < first ? raw[token * d + i] : key) - mean;
    }
  }
}

// A format that values of a side pass through.
struct Stored {
  Encoding encoding;
  const char* where;
};

// Names the largest of a unit's rows, which share the overflow.
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
    return io::formatted("%c of token %lld reaches %.7g, but %s%s holds only magnitudes below %.7g", side,
                         static_cast<long long>(token), static_cast<double>(most),
                         encoding_name(place.encoding).c_str(), place.where, static_cast<double>(limit));
  }
  return "";  // the codec is not the cause
}

constexpr int64_t kRows = 256;  // at least; the intervals cover the scatter of so few rows

std::string side_failure(const char* side, const Encoding& encoding, const Interval& stated, int head_dim) {
  const int64_t units = (kRows + encoding.group - 1) / encoding.group;
  std::vector<float> rows(static_cast<size_t>(units * encoding.group * head_dim));
  math::random::fill_normal(math::random::key({uint64_t{encoding.group}}), rows);
  const std::vector<float> back = through_codec(encoding, head_dim, rows);
  const double error = relative_l2(std::vector<double>(back.begin(), back.end()),
                                   std::vector<double>(rows.begin(), rows.end()));
  if (stated.low <= error && error <= stated.high) return "";  // NaN fails
  return std::string("the codec's error of ") + side + " is " + in_short(error) +
         " over N(0,1), and it states " + in_short(stated.low) + " to " + in_short(stated.high);
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

std::vector<float> token_of(const float* rows, int64_t heads, int64_t tokens, int64_t token, int64_t width) {
  std::vector<float> one;
  for (int64_t head = 0; head < heads; ++head) {
    const float* row = rows + (head * tokens + token) * width;
    one.insert(one.end(), row, row + width);
  }
  return one;
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

void rotate_back(Rotation rotation, int head_dim, std::vector<float>& rows) {
  if (rotation != Rotation::kNone) reference::hadamard(rows, head_dim);
  if (rotation == Rotation::kRandom) reference::flip_signs(rows, head_dim);
}

HeadRows decoded_rows(Cache& cache, SequenceId id, int layer, int kv_head) {
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

HeadRows stored_rows(Cache& cache, SequenceId id, int layer, int kv_head) {
  const int d = cache.shape().head_dim;
  HeadRows stored = decoded_rows(cache, id, layer, kv_head);
  const std::span<const float> mean = cache.removed_mean(id, layer, kv_head);
  for (size_t i = 0; !mean.empty() && i < stored.k.size(); ++i) stored.k[i] += mean[i % mean.size()];
  const Codec codec = codec_of(cache.spec(layer)).make(cache.spec(layer).codec);
  rotate_back(codec.k_rotation, d, stored.k);
  rotate_back(codec.v_rotation, d, stored.v);
  return stored;
}

std::vector<float> through_codec(const Encoding& encoding, int head_dim, const std::vector<float>& rows,
                                 const std::byte* tables) {
  const auto unit = static_cast<size_t>(encoding.group * head_dim), units = rows.size() / unit;
  if (rows.size() != units * unit) throw std::logic_error("rows to encode that are no whole units");
  const int64_t data_bytes = unit_data_bytes(encoding, head_dim),
                meta_bytes = unit_meta_bytes(encoding, head_dim);
  std::vector<std::byte> data(units * static_cast<size_t>(data_bytes)),
      meta(units * static_cast<size_t>(meta_bytes));
  std::vector<UnitJob> jobs;
  for (size_t i = 0; i < units; ++i) {
    jobs.push_back(
        {rows.data() + i * unit, data.data() + i * static_cast<size_t>(data_bytes),
         tables ? const_cast<std::byte*>(tables) : meta.data() + i * static_cast<size_t>(meta_bytes)});
  }
  encode_units(encoding, head_dim, jobs);
  const Side side{data.data(), tables ? tables : meta.data(), data_bytes, meta_bytes, encoding};
  std::vector<float> out(rows.size());
  decode_rows(side, head_dim, 0, static_cast<int64_t>(rows.size()) / head_dim, out.data());
  return out;
}

std::vector<float> as_stored(const Codec& codec, bool is_v, int heads, int head_dim,
                             std::vector<float> rows) {
  const Rotation rotation = is_v ? codec.v_rotation : codec.k_rotation;
  rotate(rotation, head_dim, rows);
  std::vector<float> stored = ResidualBuffer::needed(codec) ? through_codec(kResidual, head_dim, rows) : rows;
  const RowUnits units = codec.units();
  const int64_t n = std::ssize(rows) / heads / head_dim,
                coded = std::max<int64_t>(0, n - units.first) / units.rows * units.rows;
  for (int64_t head = 0; coded > 0 && head < heads; ++head) {
    const int64_t at = (head * n + units.first) * head_dim;
    const auto from = (ResidualBuffer::waits(codec) ? stored : rows).begin() + at;
    const std::vector<float> units_rows(from, from + coded * head_dim),
        decoded = through_codec(is_v ? codec.v : codec.k, head_dim, units_rows);
    std::copy(decoded.begin(), decoded.end(), stored.begin() + at);
  }
  rotate_back(rotation, head_dim, stored);
  return stored;
}

std::vector<float> as_waiting(const Codec& codec, bool is_v, int head_dim, std::vector<float> rows) {
  const Rotation rotation = is_v ? codec.v_rotation : codec.k_rotation;
  rotate(rotation, head_dim, rows);
  std::vector<float> raw = through_codec(kResidual, head_dim, rows);
  rotate_back(rotation, head_dim, raw);
  return raw;
}

namespace {

// The first row of a side, counted from its row `first`, that differs from the row that `came` after all encodings in
// turn; -1 if none does. The last encoding is the side's own.
int64_t first_misplaced(const Side& side, int64_t first, const std::vector<float>& came, int head_dim,
                        std::span<const Encoding> encodings) {
  std::vector<float> want = came;
  for (const Encoding& encoding : encodings) {
    const bool learned = encoding.format == Format::kVq && encoding == side.encoding;
    want = through_codec(encoding, head_dim, want, learned ? side.meta : nullptr);
  }
  if (encodings.back() != side.encoding) return 0;
  std::vector<float> got(want.size());
  const auto d = static_cast<size_t>(head_dim), rows = got.size() / d;
  decode_rows(side, head_dim, first, static_cast<int64_t>(rows), got.data());
  for (size_t row = 0; row < rows; ++row) {
    if (std::memcmp(got.data() + row * d, want.data() + row * d, d * sizeof(float)) != 0)
      return static_cast<int64_t>(row);
  }
  return -1;
}

}  // namespace

std::string misplaced_row(Cache& cache, SequenceId id, int layer, int kv_head, const HeadRows& all) {
  const int d = cache.shape().head_dim;
  const std::vector<int64_t> kept = cache.kept(id, layer, kv_head);
  const Spec& spec = cache.spec(layer);
  const Codec codec = codec_of(spec).make(spec.codec);
  const bool buffered = ResidualBuffer::waits(codec);
  const int64_t chunk = std::max<int64_t>(1, kChunk / codec.unit_rows()) * codec.unit_rows();
  std::vector<int64_t> first_keys(static_cast<size_t>(std::min(codec.mean_rows, std::ssize(kept))));
  std::iota(first_keys.begin(), first_keys.end(), 0);
  const HeadRows averaged = before_encoding(pick(all, first_keys, d), spec, d);
  int64_t slot = 0;
  for (const Span& span : cache.spans(id, layer, kv_head)) {
    if (slot + span.rows > std::ssize(kept)) return "more rows are stored than tokens are kept";
    for (int64_t first = 0; first < span.rows; first += chunk) {
      const int64_t count = std::min(chunk, span.rows - first);
      const std::span tokens(kept.data() + slot + first, static_cast<size_t>(count));
      HeadRows came = before_encoding(pick(all, tokens, d), spec, d);
      subtract_mean(codec, d, averaged.k, tokens, came.k);
      for (const bool is_v : {false, true}) {
        const Side& side = is_v ? span.v : span.k;
        std::vector<Encoding> encodings{side.encoding};
        if (buffered) encodings.insert(encodings.begin(), kResidual);
        const int64_t row = first_misplaced(side, first, is_v ? came.v : came.k, d, encodings);
        if (row < 0) continue;
        return std::string(is_v ? "V" : "K") + " of token " +
               std::to_string(tokens[static_cast<size_t>(row)]) + " is not as " +
               encoding_name(side.encoding) + " stores it";
      }
    }
    slot += span.rows;
  }
  return "";
}

bool all_finite(const HeadRows& rows) { return finite(rows.k) && finite(rows.v); }

std::string overflow_of(Cache& cache, SequenceId id, int layer, int kv_head, const HeadRows& all) {
  const int d = cache.shape().head_dim;
  const std::vector<int64_t> kept = cache.kept(id, layer, kv_head);
  const bool buffered = ResidualBuffer::needed(codec_of(cache.spec(layer)).make(cache.spec(layer).codec));
  int64_t first = 0;  // the span's first row
  for (const Span& span : cache.spans(id, layer, kv_head)) {
    for (const bool is_v : {false, true}) {
      const Side& side = is_v ? span.v : span.k;
      const int64_t row = first_lost(side, span.rows, d);
      if (row < 0) continue;
      const int64_t unit = row / side.encoding.group * side.encoding.group,
                    rows = std::min<int64_t>(side.encoding.group, span.rows - unit);
      const std::span tokens(kept.data() + first + unit, static_cast<size_t>(rows));
      const Stored places[] = {{side.encoding, ""}, {kResidual, ", the residual buffer,"}};
      const HeadRows came = before_encoding(all, cache.spec(layer), d);
      return named(is_v ? 'V' : 'K', tokens, is_v ? came.v : came.k, d, {places, size_t{1} + buffered});
    }
    first += span.rows;
  }
  return "";
}

std::unique_ptr<Cache> before_the_cut(const Cache& cache, const workload::Workload& workload, int sequence,
                                      int layer, int64_t tokens, memory::Ledger& ledger) {
  CacheShape shape = cache.shape();
  shape.layers = shape.max_sequences = 1;
  std::unique_ptr<Cache> uncut = build_cache(cache.spec(layer), shape, ledger);
  const SequenceId id = uncut->add_sequence();
  std::vector<float> k(static_cast<size_t>(shape.kv_heads * shape.head_dim)), v(k.size());
  for (int64_t t = 0; t < tokens; ++t) {
    workload.read(sequence, layer, t, 1, nullptr, k.data(), v.data());
    const StepInput in{.sequence = id, .n = 1, .k = k.data(), .v = v.data()};
    uncut->append(0, {&in, 1});
  }
  return uncut;
}

std::string codec_failure(const Codec& codec, int head_dim) {
  if (head_dim < 32 || head_dim > 512) return "";
  const std::string of_k = side_failure("K", codec.k, codec.k_error, head_dim);
  return of_k.empty() ? side_failure("V", codec.v, codec.v_error, head_dim) : of_k;
}

}  // namespace kv::verify
