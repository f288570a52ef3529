// Shared by tests of attention: rows of any format in memory of their own, and outputs beside FP64's.
#pragma once

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "harness/verify/reference/attention.h"
#include "kernels/attention.h"
#include "kernels/cpu/isa.h"
#include "kernels/encode.h"
#include "kernels/format/encoding.h"
#include "tests/kernels/format/unit.h"
#include "tests/normal.h"

namespace kv::test {

// Runs each test once an instruction set of this machine.
class EveryIsa : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { cpu::force_isa(GetParam()); }
  void TearDown() override { cpu::force_isa("auto"); }
};
inline std::string isa_name(const testing::TestParamInfo<std::string>& isa) { return isa.param; }
inline auto every_isa() { return testing::ValuesIn(cpu::available_isas()); }

// K or V of one head, `rows` [count, head_dim] encoded. Memory ends where they do, so that the sanitizers see
// a read beyond. Units lie `gap` bytes apart, and their scales too.
struct Stored {
  Stored(const Encoding& e, int head_dim, std::span<const float> rows, int64_t gap = 0)
      : width(head_dim), count(std::ssize(rows) / head_dim) {
    const int64_t units = (count + e.group - 1) / e.group, unit = int64_t{e.group} * head_dim;
    const int64_t meta_bytes = unit_meta_bytes(e, head_dim);
    side = {.data = nullptr,
            .meta = nullptr,
            .stride = unit_data_bytes(e, head_dim) + gap,
            .meta_stride = meta_bytes ? meta_bytes + gap : 0,
            .encoding = e};
    data = std::make_unique<std::byte[]>(static_cast<size_t>(units * side.stride));
    meta = std::make_unique<std::byte[]>(static_cast<size_t>(units * side.meta_stride));
    std::vector<float> whole(rows.begin(), rows.end());
    whole.resize(static_cast<size_t>(units * unit));
    for (int64_t u = 0; u < units; ++u)
      encode_unit(e, head_dim, whole.data() + u * unit, data.get() + u * side.stride,
                  meta.get() + u * side.meta_stride);
    side.data = data.get();
    if (meta_bytes) side.meta = meta.get();
  }
  // The rows that attention should see.
  std::vector<float> decoded() const {
    std::vector<float> rows(static_cast<size_t>(count * width));
    decode_rows(side, width, 0, count, rows.data());
    return rows;
  }
  int width;
  int64_t count;
  Side side;
  std::unique_ptr<std::byte[]> data, meta;
};

// Random K and V of one head, whole and in spans of `step` rows.
struct StoredRows {
  StoredRows(const Encoding& ke, const Encoding& ve, int head_dim, int64_t rows, int64_t gap = 0)
      : k(ke, head_dim, gaussian(rows * head_dim, 1), gap),
        v(ve, head_dim, gaussian(rows * head_dim, 2), gap),
        whole{{.k = k.side, .v = v.side, .rows = rows}} {}
  std::vector<Span> cut(int64_t step) const {
    const auto moved = [](Side side, int64_t row) {
      side.data += row / side.encoding.group * side.stride;
      side.meta += row / side.encoding.group * side.meta_stride;
      return side;
    };
    std::vector<Span> spans;
    for (int64_t row = 0; row < k.count; row += step)
      spans.push_back({moved(k.side, row), moved(v.side, row), std::min(step, k.count - row)});
    return spans;
  }
  Stored k, v;
  std::vector<Span> whole;
};

// K and V of one head, span by span, and the rows that they decode to.
struct StoredHead {
  explicit StoredHead(int dim) : head_dim(dim) {}
  void add(const Encoding& e, std::span<const float> keys, std::span<const float> values) {
    add(e, e, keys, values);
  }
  void add(const Encoding& ke, const Encoding& ve, std::span<const float> keys,
           std::span<const float> values) {
    const Stored& stored_k = store.emplace_back(ke, head_dim, keys);
    const std::vector<float> seen_k = stored_k.decoded();
    const Side k_side = stored_k.side;
    const Stored& stored_v = store.emplace_back(ve, head_dim, values);
    const std::vector<float> seen_v = stored_v.decoded();
    spans.push_back({k_side, stored_v.side, std::ssize(keys) / head_dim});
    k.insert(k.end(), seen_k.begin(), seen_k.end());
    v.insert(v.end(), seen_v.begin(), seen_v.end());
  }
  int head_dim;
  std::vector<float> k, v;
  std::vector<Stored> store;
  std::vector<Span> spans;
};

// Runs the problems in a workspace of just the bytes that were asked for. Its bytes are set, so that a read before a write shows.
inline void run_attention(std::span<const HeadQueries> problems, int head_dim) {
  const size_t bytes = attention_workspace_bytes(problems, head_dim), guard = 64;
  const std::unique_ptr<std::byte[], void (*)(void*)> workspace(
      static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64 + guard)), std::free);
  std::memset(workspace.get(), 0xa5, bytes + guard);
  attend(problems, head_dim, workspace.get());
  for (size_t i = bytes; i < bytes + guard; ++i) ASSERT_EQ(workspace[i], std::byte{0xa5});
}

// The problem of q [group, n, head_dim], whose tokens are the last of all rows; `options` has the rest of it.
inline HeadQueries problem_of(std::span<const Span> spans, int head_dim, const std::vector<float>& q,
                              int64_t n, std::vector<float>& out, HeadQueries options = {}) {
  int64_t rows = 0;
  for (const Span& span : spans) rows += span.rows;
  out.assign(q.size(), NAN);
  options.q = q.data();
  options.out = out.data();
  options.spans = spans;
  options.group = static_cast<int>(std::ssize(q) / n / head_dim);
  options.n = n;
  options.visible = rows - n + 1;
  return options;
}

// Its outputs.
inline std::vector<float> attended(std::span<const Span> spans, int head_dim, const std::vector<float>& q,
                                   int64_t n = 1, const HeadQueries& options = {}) {
  std::vector<float> out;
  const HeadQueries problem = problem_of(spans, head_dim, q, n, out, options);
  run_attention({&problem, 1}, head_dim);
  return out;
}

// The same of decoded rows in FP64.
inline std::vector<double> attended_fp64(std::span<const float> k, std::span<const float> v, int head_dim,
                                         std::span<const float> q, int64_t n = 1) {
  const auto width = static_cast<size_t>(head_dim);
  const int64_t rows = std::ssize(k) / head_dim;
  std::vector<double> all;
  for (size_t at = 0; at < q.size(); at += width) {
    const int64_t seen = rows - n + 1 + static_cast<int64_t>(at / width) % n;
    const size_t size = static_cast<size_t>(seen) * width;
    const auto out = reference::attend(q.subspan(at, width), k.first(size), v.first(size), seen).out;
    all.insert(all.end(), out.begin(), out.end());
  }
  return all;
}

// Relative L2 distance of all outputs together.
inline double relative_error(const std::vector<float>& got, const std::vector<double>& want) {
  double error = 0.0, norm = 0.0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(double{got[i]} - want[i], 2);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

inline void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b,
                             const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << what;
}

template <class F>
void expect_threads_change_no_bit(F run, const std::string& what) {
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const std::vector<float> one = run();
  omp_set_num_threads(3);
  const std::vector<float> three = run();
  omp_set_num_threads(threads);
  expect_same_bits(one, three, what);
}

}  // namespace kv::test
