// Units on their way into a cache, gathered so that each side passes its encoder in one loop: finding places
// calls virtual functions row by row, and neither should wait for the other.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/encode.h"
#include "variants/core/placement.h"

namespace kv {

// Encodes in the order in which units were added; rows must stay where they are until flush().
class UnitBatch {
 public:
  UnitBatch(const UnitLayout& unit, int head_dim)
      : head_dim_(head_dim),
        k_(unit.k, unit.rows, unit.stride[kKData], unit.stride[kKMeta]),
        v_(unit.v, unit.bytes[kVData] > 0 ? unit.rows : 0, unit.stride[kVData], unit.stride[kVMeta]) {}

  // k and v [unit.rows, head_dim]; v is not looked at where the unit has no plane for it.
  void add(const UnitAddress& to, const float* k, const float* v) {
    add(k_, k, to.plane[kKData], to.plane[kKMeta]);
    add(v_, v, to.plane[kVData], to.plane[kVMeta]);
  }
  void flush() {
    flush(k_);
    flush(v_);
  }

 private:
  struct Side {
    Side(const Encoding& e, int64_t rows, int64_t data_stride, int64_t bytes_of_meta)
        : encoding(e), units(rows / e.group), stride(data_stride), meta_stride(bytes_of_meta) {}
    Encoding encoding;
    int64_t units, stride, meta_stride;  // the encoding's, in one unit of the cache
    size_t count = 0;
    std::array<UnitJob, 64> jobs;  // not initialised
  };

  void add(Side& side, const float* rows, std::byte* data, std::byte* meta) const {
    for (int64_t u = 0; u < side.units; ++u) {
      if (side.count == side.jobs.size()) flush(side);
      side.jobs[side.count++] = {rows + u * side.encoding.group * head_dim_, data + u * side.stride,
                                 meta + u * side.meta_stride};
    }
  }
  void flush(Side& side) const {
    encode_units(side.encoding, head_dim_, std::span(side.jobs).first(side.count));
    side.count = 0;
  }

  int head_dim_;
  Side k_, v_;
};

}  // namespace kv
