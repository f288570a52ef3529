// One head's encoded rows in pages anywhere in memory, as caches hold them: pages for the GPU's kernels, spans for the CPU's.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/rows/pages.h"
#include "kernels/format/descriptor.h"
#include "kernels/format/encoding.h"
#include "kernels/span.h"

namespace kv::gpu_check {

struct CodecPair {
  Encoding k, v;
  int32_t unit_rows() const { return std::max<int32_t>(k.group, v.group); }
  std::string name() const { return k == v ? encoding_name(k) : encoding_name(k) + "+" + encoding_name(v); }
};

inline CodecPair same(const Encoding& e) { return {e, e}; }

// A placement's layout of units. `heads`: other heads' units lie between this one's (row-major planes).
struct Placing {
  int32_t page_units;
  bool shuffled = false;
  int32_t heads = 1;
};
inline constexpr Placing kContiguous{1 << 20}, kRowMajor{1 << 20, false, 3}, kPaged{16, true}, kTiny{1, true},
    kOdd{7, true};

inline cuda::SideLayout side_layout(const Encoding& e, int head_dim, int32_t unit_rows, int32_t heads) {
  const auto data = static_cast<int32_t>(unit_data_bytes(e, head_dim));
  const auto meta = static_cast<int32_t>(unit_meta_bytes(e, head_dim));
  const int32_t inner = unit_rows / e.group;
  return {e, data, meta, data * inner * heads, meta * inner * heads};
}

inline cuda::Layout layout_of(const CodecPair& codec, int head_dim, const Placing& placing) {
  const int32_t rows = codec.unit_rows();
  return {.k = side_layout(codec.k, head_dim, rows, placing.heads),
          .v = side_layout(codec.v, head_dim, rows, placing.heads),
          .head_dim = head_dim,
          .unit_rows = rows,
          .page_units = placing.page_units};
}

// Memory aligned to 64 and of exact size, so that the sanitizers see an access outside.
class Bytes {
 public:
  explicit Bytes(int64_t size)
      : data_(static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>(size + 63) / 64 * 64))) {
    std::fill_n(data_.get(), (size + 63) / 64 * 64, std::byte{0xff});
  }
  std::byte* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

// Planes of pages that several heads share, by page and plane.
using Pool = std::map<std::pair<size_t, int>, Bytes>;

class PagedHead {
 public:
  // Head `index` of `heads`, whose pages lie side by side if there is a pool.
  PagedHead(const CodecPair& codec, int head_dim, const Placing& placing, int32_t rows, Pool* pool = nullptr,
            int index = 0, int heads = 1)
      : layout(layout_of(codec, head_dim, placing)), rows_(rows) {
    for (int32_t unit = 0; unit < units(); unit += layout.page_units) {
      const int32_t left = units() - unit,
                    here = pool ? int32_t{layout.page_units} : std::min<int32_t>(layout.page_units, left);
      const auto plane = [&](int which, int32_t stride) -> std::byte* {
        const int64_t bytes = int64_t{stride} * here;
        const std::pair key{pages.size(), which};
        return stride
                   ? (pool ? *pool : own_).try_emplace(key, bytes * heads).first->second.get() + bytes * index
                   : nullptr;
      };
      pages.push_back({plane(0, layout.k.data_stride), plane(1, layout.k.meta_stride),
                       plane(2, layout.v.data_stride), plane(3, layout.v.meta_stride)});
    }
    // The last page may be short and stays in place.
    std::mt19937 random(7);
    if (placing.shuffled && !pages.empty()) std::shuffle(pages.begin(), pages.end() - 1, random);
  }

  int32_t rows() const { return rows_; }
  int32_t units() const { return (rows_ + layout.unit_rows - 1) / layout.unit_rows; }

  // Bytes of a page's plane: K's data and metadata, V's.
  std::array<size_t, 4> page_bytes(size_t page) const {
    const auto units_here = static_cast<size_t>(
        std::min<int32_t>(layout.page_units, units() - static_cast<int32_t>(page) * layout.page_units));
    return {units_here * static_cast<size_t>(layout.k.data_stride),
            units_here * static_cast<size_t>(layout.k.meta_stride),
            units_here * static_cast<size_t>(layout.v.data_stride),
            units_here * static_cast<size_t>(layout.v.meta_stride)};
  }

  // Stores rows [rows(), head_dim] with the CPU's encoders; zeros pad the last unit.
  void fill(std::vector<float> k, std::vector<float> v) {
    const size_t size = static_cast<size_t>(units()) * layout.unit_rows * layout.head_dim;
    k.resize(size);
    v.resize(size);
    for (int32_t row = 0; row < units() * layout.unit_rows; ++row) {
      const cuda::RowPair at = cuda::locate(layout, pages.data(), row);
      if (at.k.row == 0) encode(layout.k, &k[static_cast<size_t>(row) * layout.head_dim], at.k);
      if (at.v.row == 0) encode(layout.v, &v[static_cast<size_t>(row) * layout.head_dim], at.v);
    }
  }

  // The stored rows, decoded by the CPU: [rows(), head_dim].
  std::vector<float> decoded(bool v) const {
    std::vector<float> all(static_cast<size_t>(rows_) * layout.head_dim);
    for (int32_t row = 0; row < rows_; ++row) {
      const cuda::RowPair pair = cuda::locate(layout, pages.data(), row);
      const cuda::StoredRow& at = v ? pair.v : pair.k;
      descriptor_of(at.encoding.format)
          .decode(at.encoding, layout.head_dim, at.data, at.meta, at.row, 1,
                  &all[static_cast<size_t>(row) * layout.head_dim]);
    }
    return all;
  }

  // A span a page; units of several rows that other heads' units part are spans of their own.
  std::vector<Span> spans() const {
    std::vector<Span> all;
    const auto side = [&](const cuda::StoredRow& at, const cuda::SideLayout& of) {
      return Side{at.data, of.meta_bytes ? at.meta : nullptr,
                  layout.unit_rows == 1 ? of.data_stride : of.data_bytes,
                  layout.unit_rows == 1 ? of.meta_stride : of.meta_bytes, of.encoding};
    };
    const bool parted =
        layout.k.data_stride * layout.k.encoding.group > layout.k.data_bytes * layout.unit_rows;
    const int64_t units = parted && layout.unit_rows > 1 ? 1 : int32_t{layout.page_units};
    for (int64_t row = 0, step = units * layout.unit_rows; row < rows_; row += step) {
      const cuda::RowPair at = cuda::locate(layout, pages.data(), static_cast<int32_t>(row));
      all.push_back({side(at.k, layout.k), side(at.v, layout.v), std::min(step, rows_ - row)});
    }
    return all;
  }

  cuda::Layout layout;
  std::vector<cuda::Page> pages;

 private:
  void encode(const cuda::SideLayout& side, const float* rows, const cuda::StoredRow& at) {
    descriptor_of(side.encoding.format).encode(side.encoding, layout.head_dim, rows, at.data, at.meta);
  }

  int32_t rows_;
  Pool own_;
};

// The plane and row of the first difference in bytes; empty if there is none.
inline std::string difference(const PagedHead& a, const PagedHead& b) {
  const auto differ = [](const std::byte* x, const std::byte* y, int32_t bytes) {
    return bytes > 0 && !std::equal(x, x + bytes, y);
  };
  for (int32_t row = 0; row < a.rows(); ++row) {
    const cuda::RowPair x = cuda::locate(a.layout, a.pages.data(), row);
    const cuda::RowPair y = cuda::locate(b.layout, b.pages.data(), row);
    const std::string at = " of row " + std::to_string(row);
    if (differ(x.k.data, y.k.data, a.layout.k.data_bytes)) return "K's codes" + at;
    if (differ(x.k.meta, y.k.meta, a.layout.k.meta_bytes)) return "K's scales" + at;
    if (differ(x.v.data, y.v.data, a.layout.v.data_bytes)) return "V's codes" + at;
    if (differ(x.v.meta, y.v.meta, a.layout.v.meta_bytes)) return "V's scales" + at;
  }
  return "";
}

}  // namespace kv::gpu_check
