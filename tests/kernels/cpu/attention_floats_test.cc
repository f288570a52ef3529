// Rows of fewer than 32 bits an element, and FP8's scales, against FP64 over what is stored: on every
// instruction set, also where magnitudes are extreme and where formats change within a tile.
#include "tests/kernels/cpu/attention_support.h"

namespace kv::attention_floats_test {
namespace {

using namespace test;

double error_of(const StoredHead& head, const std::vector<float>& q) {
  return relative_error(attended(head.spans, head.head_dim, q),
                        attended_fp64(head.k, head.v, head.head_dim, q));
}

using Floats = EveryIsa;
INSTANTIATE_TEST_SUITE_P(EveryIsa, Floats, every_isa(), isa_name);

TEST_P(Floats, AgreeWithFp64) {
  for (const Encoding& e : {kF32, kF16, kBf16, kFp8E4M3, kFp8E5M2}) {
    for (const int head_dim : {8, 24, 32, 64, 80, 96, 128, 256}) {
      for (const int group : {1, 7}) {
        StoredHead head(head_dim);
        head.add(e, gaussian(150 * head_dim, 1), gaussian(150 * head_dim, 2));
        EXPECT_LT(error_of(head, gaussian(group * head_dim, 3)), 2e-6)
            << encoding_name(e) << " head_dim " << head_dim << " group " << group;
      }
    }
  }
}

// Small keys under large queries and the other way round, and values of any magnitude.
TEST_P(Floats, AnyMagnitude) {
  for (const Encoding& e : {kF32, kBf16, kFp8E4M3, kFp8E5M2}) {
    for (const float keys : {0x1p-80f, 0x1p-20f, 0x1p6f, 0x1p20f, 0x1p80f}) {
      for (const float values : {0x1p-80f, 0x1p5f, 0x1p10f, 0x1p20f, 0x1p100f}) {
        StoredHead head(128);
        head.add(e, gaussian(100 * 128, 1, keys), gaussian(100 * 128, 2, values));
        EXPECT_LT(error_of(head, gaussian(4 * 128, 3, 1.0f / keys)), 2e-6)
            << encoding_name(e) << " keys " << keys << " values " << values;
      }
    }
  }
}

// A row of small elements and one large is stored in FP8's subnormal numbers.
TEST_P(Floats, SubnormalCodes) {
  for (const Encoding& e : {kFp8E4M3, kFp8E5M2}) {
    const float small = e == kFp8E4M3 ? 1e-5f : 1e-9f;
    std::vector<float> k = gaussian(70 * 64, 1, small), v = gaussian(70 * 64, 2, small);
    for (size_t row = 0; row < 70; ++row) k[row * 64 + 9] = v[row * 64 + 7] = 1.0f;
    std::vector<float> q = gaussian(4 * 64, 3, 1.0f / small);
    for (size_t i = 9; i < q.size(); i += 64) q[i] = 1.0f;
    StoredHead head(64);
    head.add(e, k, v);
    const auto got = attended(head.spans, 64, q);
    const auto want = attended_fp64(head.k, head.v, 64, q);
    for (size_t i = 0; i < q.size(); ++i) {
      const double scale = i % 64 == 7 ? 1.0 : static_cast<double>(small);
      ASSERT_NEAR(got[i], want[i], 1e-5 * scale) << encoding_name(e) << " element " << i;
    }
  }
}

// Sums change their order with the format of values.
TEST_P(Floats, FormatsMayChangeWithinATile) {
  for (const int head_dim : {64, 96, 128}) {
    StoredHead head(head_dim);
    unsigned seed = 1;
    for (int turn = 0; turn < 3; ++turn) {
      for (const Encoding& e : {kFp8E4M3, kBf16, kF32, kFp8E5M2, kF16}) {
        const int64_t n = (7 + 2 * turn) * head_dim;
        head.add(e, gaussian(n, seed), gaussian(n, seed + 1));
        seed += 2;
      }
    }
    EXPECT_LT(error_of(head, gaussian(6 * head_dim, 99)), 2e-6) << head_dim;
    head.add(kQ8, gaussian(5 * head_dim, 50), gaussian(5 * head_dim, 51));
    head.add(kFp8E4M3, gaussian(5 * head_dim, 52), gaussian(5 * head_dim, 53));
    EXPECT_LT(error_of(head, gaussian(6 * head_dim, 99)), 2e-3) << head_dim;
  }
}

}  // namespace
}  // namespace kv::attention_floats_test
