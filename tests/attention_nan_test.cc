// A NaN anywhere in what a query attends to must reach its output, and no other query's: a harness that
// swallows it would call a broken cache exact.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cpu/isa.h"
#include "kernels/encoding.h"

namespace kv {
namespace {

constexpr int kHeadDim = 64, kRows = 150, kGroup = 2;

const Encoding kEncodings[] = {{.format = Format::kF32, .bits = 32},
                               {.format = Format::kF16, .bits = 16},
                               {.format = Format::kBf16, .bits = 16},
                               {.format = Format::kFp8E4M3, .bits = 8},
                               {.format = Format::kFp8E5M2, .bits = 8},
                               {.format = Format::kQ8_0, .bits = 8},
                               {.format = Format::kQ4_0, .bits = 4},
                               {.format = Format::kToken, .bits = 8},
                               {.format = Format::kToken, .bits = 4, .affine = true}};

std::vector<float> gaussian(int n, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(rng);
  return x;
}

// One side of a span, encoded.
struct Stored {
  Stored(const Encoding& e, const std::vector<float>& rows)
      : data(static_cast<size_t>(kRows * unit_data_bytes(e, kHeadDim))),
        meta(static_cast<size_t>(kRows * unit_meta_bytes(e, kHeadDim) + 1)) {
    side = {.data = data.data(),
            .meta = unit_meta_bytes(e, kHeadDim) ? meta.data() : nullptr,
            .stride = unit_data_bytes(e, kHeadDim),
            .meta_stride = unit_meta_bytes(e, kHeadDim),
            .encoding = e};
    for (int64_t i = 0; i < kRows; ++i) {
      encode_unit(e, kHeadDim, rows.data() + i * kHeadDim, data.data() + i * side.stride,
                  meta.data() + i * side.meta_stride);
    }
  }
  std::vector<std::byte> data, meta;
  Side side;
};

std::vector<float> attended(const Encoding& e, const std::vector<float>& q, const std::vector<float>& k,
                            const std::vector<float>& v) {
  const Stored keys(e, k), values(e, v);
  const Span span{.k = keys.side, .v = values.side, .rows = kRows};
  std::vector<float> out(q.size());
  const HeadQueries problem{
      .q = q.data(), .out = out.data(), .spans = {&span, 1}, .group = kGroup, .visible = kRows};
  const size_t bytes = attention_workspace_bytes({&problem, 1}, kHeadDim);
  const std::unique_ptr<std::byte, void (*)(void*)> workspace(
      static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)), std::free);
  attend({&problem, 1}, kHeadDim, workspace.get());
  return out;
}

struct Nan : testing::TestWithParam<std::string> {
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { force_isa("auto"); }
  std::vector<float> q = gaussian(kGroup * kHeadDim, 1), k = gaussian(kRows * kHeadDim, 2),
                     v = gaussian(kRows * kHeadDim, 3);
};
INSTANTIATE_TEST_SUITE_P(EveryIsa, Nan, testing::ValuesIn(available_isas()),
                         [](const auto& isa) { return isa.param; });

TEST_P(Nan, OfAKeyReachesAllThatSeeIt) {
  for (const Encoding& e : kEncodings) {
    for (const float x : attended(e, q, k, v)) ASSERT_TRUE(std::isfinite(x)) << encoding_name(e);
    for (const int row : {0, 63, 64, kRows - 1}) {
      std::vector<float> keys = k;
      keys[static_cast<size_t>(row * kHeadDim + 5)] = NAN;
      for (const float x : attended(e, q, keys, v))
        ASSERT_TRUE(std::isnan(x)) << encoding_name(e) << " row " << row;
    }
  }
}

// In its own element at least: a scale that covers others takes them along.
TEST_P(Nan, OfAValueReachesItsElement) {
  for (const Encoding& e : kEncodings) {
    std::vector<float> values = v;
    values[static_cast<size_t>(70 * kHeadDim + 5)] = NAN;
    const std::vector<float> out = attended(e, q, k, values);
    for (int r = 0; r < kGroup; ++r)
      EXPECT_TRUE(std::isnan(out[static_cast<size_t>(r * kHeadDim + 5)])) << encoding_name(e);
  }
}

TEST_P(Nan, OfAQueryReachesItsOutputAlone) {
  q[kHeadDim + 7] = NAN;
  for (const Encoding& e : kEncodings) {
    const std::vector<float> out = attended(e, q, k, v);
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(std::isnan(out[i]), i >= kHeadDim) << encoding_name(e) << " element " << i;
  }
}

}  // namespace
}  // namespace kv
