// Spans over units, and whether a block can hold them.
#include "variants/core/placement.h"

#include "kernels/format/encoding.h"

namespace kv {

Span make_span(const UnitLayout& unit, const std::array<const std::byte*, kPlanes>& base,
               const std::array<int64_t, kPlanes>& unit_stride, int64_t rows) {
  // A side whose own groups are as long as the unit moves by units; one with shorter groups lies densely
  // inside.
  const auto side = [&](const Encoding& encoding, int data, int meta) {
    const bool whole = encoding.group == unit.rows;
    return Side{.data = base[data],
                .meta = base[meta],
                .stride = whole ? unit_stride[data] : unit.stride[data],
                .meta_stride = whole ? unit_stride[meta] : unit.stride[meta],
                .encoding = encoding};
  };
  const Side k = side(unit.k, kKData, kKMeta);
  const bool latent = unit.bytes[kVData] == 0;  // V is read from K's rows
  return {.k = k, .v = latent ? k : side(unit.v, kVData, kVMeta), .rows = rows};
}

UnitLayout unit_layout(const Codec& codec, int head_dim, bool latent) {
  UnitLayout unit{.rows = codec.unit_rows(), .bytes = {}, .k = codec.k, .v = codec.v, .stride = {}};
  unit.stride = {unit_data_bytes(codec.k, head_dim), unit_meta_bytes(codec.k, head_dim),
                 unit_data_bytes(codec.v, head_dim), unit_meta_bytes(codec.v, head_dim)};
  for (int p = 0; p < kPlanes; ++p) {
    const Encoding& side = p == kKData || p == kKMeta ? codec.k : codec.v;
    unit.bytes[p] = unit.stride[p] * (unit.rows / side.group);
  }
  if (latent) unit.bytes[kVData] = unit.bytes[kVMeta] = unit.stride[kVData] = unit.stride[kVMeta] = 0;
  return unit;
}

std::string group_straddles(const std::string& what, int64_t rows, int64_t unit_rows) {
  if (rows % unit_rows == 0) return "";
  return what + " of " + std::to_string(rows) + " rows would cut the codec's groups of " +
         std::to_string(unit_rows) + " rows; its rows must be a multiple of " + std::to_string(unit_rows);
}

}  // namespace kv
