#include "variants/placement/tier_levels.h"

#include <algorithm>
#include <vector>

#include "kernels/encode.h"
#include "kernels/format/encoding.h"

namespace kv {
namespace {

constexpr const char* kKeys[] = {"warm_codec", "disk_codec"};
constexpr const char* kSame = "same";
constexpr int64_t kBatch = 64;  // rows that are decoded at once

// Rows of one side as one level stores them.
struct EncodedRows {
  const std::byte *data, *meta;
  std::vector<std::byte> own_data, own_meta;  // if they are not another's
};

EncodedRows encoded(const EncodedRows& from, const Encoding& as, const Encoding& to, int64_t rows,
                    int head_dim) {
  std::vector<float> values(static_cast<size_t>(rows * head_dim));
  const Side side{.data = from.data,
                  .meta = from.meta,
                  .stride = unit_data_bytes(as, head_dim),
                  .meta_stride = unit_meta_bytes(as, head_dim),
                  .encoding = as};
  decode_rows(side, head_dim, 0, rows, values.data());
  const int64_t data_bytes = unit_data_bytes(to, head_dim), meta_bytes = unit_meta_bytes(to, head_dim);
  EncodedRows out{nullptr, nullptr, std::vector<std::byte>(static_cast<size_t>(rows * data_bytes)),
                  std::vector<std::byte>(static_cast<size_t>(rows * meta_bytes))};
  out.data = out.own_data.data();
  out.meta = out.own_meta.data();
  std::vector<UnitJob> jobs;
  for (int64_t row = 0; row < rows; ++row) {
    jobs.push_back({values.data() + row * head_dim, out.own_data.data() + row * data_bytes,
                    meta_bytes > 0 ? out.own_meta.data() + row * meta_bytes : nullptr});
  }
  encode_units(to, head_dim, jobs);
  return out;
}

}  // namespace

Parameter TierLevels::parameter(std::string_view name, std::string_view help) {
  return Parameter::choice(name, {kSame, "f32", "f16", "bf16", "fp8", "q8_0", "q4_0", "token"}, help);
}

std::array<Codec, 2> TierLevels::codecs(const Stage& stage, const Codec& of_cache) {
  std::array<Codec, 2> codecs{of_cache, of_cache};
  if (stage.text(kKeys[0]) != kSame) codecs[0] = codecs[1] = codec_by_text(stage.text(kKeys[0]));
  if (stage.text(kKeys[1]) != kSame) codecs[1] = codec_by_text(stage.text(kKeys[1]));
  return codecs;
}

std::string TierLevels::refuses(const Stage& stage, const Codec& codec) {
  if (stage.text(kKeys[0]) == kSame && stage.text(kKeys[1]) == kSame) return "";
  if (codec.unit_rows() > 1) {
    return "a tier's own codec stores a row at a time, but the cache's encodes groups of " +
           std::to_string(codec.unit_rows()) + " rows together";
  }
  if (codec.residual > 0)
    return "a tier's own codec takes rows that are encoded, but the cache's keeps its newest rows raw";
  return "";
}

TierLevels::TierLevels(const Stage& stage, const PlacementContext& context)
    : contexts_{context, context, context} {
  for (int level = 1; level < kLevels; ++level) {
    PlacementContext& own = contexts_[static_cast<size_t>(level)];
    own = contexts_[static_cast<size_t>(level - 1)];
    const std::string& name = stage.text(kKeys[level - 1]);
    if (name == kSame) continue;
    own.unit = unit_layout(codec_by_text(name), context.head_dim, context.latent);
  }
}

bool TierLevels::differ(int from, int to) const {
  for (int level = from; level < to; ++level) {
    const UnitLayout &a = (*this)[level].unit, &b = (*this)[level + 1].unit;
    if (a.k != b.k || a.v != b.v) return true;
  }
  return false;
}

void TierLevels::encode(int from, const UnitAddress& rows, int to, const UnitAddress& out,
                        int64_t units) const {
  const int head_dim = contexts_[0].head_dim;
  for (const bool is_v : {false, true}) {
    if (is_v && contexts_[0].latent) continue;
    const int data = is_v ? kVData : kKData, meta = is_v ? kVMeta : kKMeta;
    const auto side = [&](int level) { return is_v ? (*this)[level].unit.v : (*this)[level].unit.k; };
    const auto &in_bytes = (*this)[from].unit.bytes, &out_bytes = (*this)[to].unit.bytes;
    for (int64_t first = 0; first < units; first += kBatch) {
      const int64_t n = std::min(kBatch, units - first);
      EncodedRows now{rows.plane[data] + first * in_bytes[data],
                      rows.plane[meta] ? rows.plane[meta] + first * in_bytes[meta] : nullptr,
                      {},
                      {}};
      for (int level = from; level < to; ++level) {
        if (side(level) != side(level + 1)) now = encoded(now, side(level), side(level + 1), n, head_dim);
      }
      Memory& memory = *contexts_[0].memory;
      memory.copy(out.plane[data] + first * out_bytes[data], now.data,
                  static_cast<size_t>(n * out_bytes[data]));
      memory.copy(out.plane[meta] + first * out_bytes[meta], now.meta,
                  static_cast<size_t>(n * out_bytes[meta]));
    }
  }
}

}  // namespace kv
