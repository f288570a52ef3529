// A NaN anywhere in what a query attends to must reach its output, and no other query's: a harness that
// swallows it would call a broken cache exact.
#include "tests/kernels/cpu/attention_support.h"

namespace kv {
namespace {

using namespace test;

constexpr int kHeadDim = 64, kRows = 150, kGroup = 2;

const Encoding kEncodings[] = {kF32, kF16, kBf16,           kFp8E4M3,      kFp8E5M2,
                               kQ8,  kQ4,  token(8, false), token(4, true)};

std::vector<float> outputs(const Encoding& e, const std::vector<float>& q, const std::vector<float>& k,
                           const std::vector<float>& v) {
  StoredHead head(kHeadDim);
  head.add(e, k, v);
  return attended(head.spans, kHeadDim, q);
}

struct Nan : EveryIsa {
  std::vector<float> q = gaussian(kGroup * kHeadDim, 1), k = gaussian(kRows * kHeadDim, 2),
                     v = gaussian(kRows * kHeadDim, 3);
};
INSTANTIATE_TEST_SUITE_P(EveryIsa, Nan, every_isa(), isa_name);

TEST_P(Nan, OfAKeyReachesAllThatSeeIt) {
  for (const Encoding& e : kEncodings) {
    for (const float x : outputs(e, q, k, v)) ASSERT_TRUE(std::isfinite(x)) << encoding_name(e);
    for (const int row : {0, 63, 64, kRows - 1}) {
      std::vector<float> keys = k;
      keys[static_cast<size_t>(row * kHeadDim + 5)] = NAN;
      for (const float x : outputs(e, q, keys, v))
        ASSERT_TRUE(std::isnan(x)) << encoding_name(e) << " row " << row;
    }
  }
}

// In its own element at least: a scale that covers others takes them along.
TEST_P(Nan, OfAValueReachesItsElement) {
  for (const Encoding& e : kEncodings) {
    std::vector<float> values = v;
    values[static_cast<size_t>(70 * kHeadDim + 5)] = NAN;
    const std::vector<float> out = outputs(e, q, k, values);
    for (int r = 0; r < kGroup; ++r)
      EXPECT_TRUE(std::isnan(out[static_cast<size_t>(r * kHeadDim + 5)])) << encoding_name(e);
  }
}

TEST_P(Nan, OfAQueryReachesItsOutputAlone) {
  q[kHeadDim + 7] = NAN;
  for (const Encoding& e : kEncodings) {
    const std::vector<float> out = outputs(e, q, k, v);
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(std::isnan(out[i]), i >= kHeadDim) << encoding_name(e) << " element " << i;
  }
}

}  // namespace
}  // namespace kv
