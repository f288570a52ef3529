// Rows of fewer than 32 bits an element, and FP8's scales, against FP64 over what is stored: on every
// instruction set, also where magnitudes are extreme and where formats change within a tile.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "harness/reference.h"
#include "kernels/attention.h"
#include "kernels/cpu/isa.h"
#include "kernels/encoding.h"

namespace kv {
namespace {

constexpr Encoding kF32{Format::kF32, 32}, kF16{Format::kF16, 16}, kBf16{Format::kBf16, 16},
    kE4M3{Format::kFp8E4M3, 8}, kE5M2{Format::kFp8E5M2, 8}, kQ8{Format::kQ8_0, 8};

std::vector<float> gaussian(int64_t n, unsigned seed, float deviation = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(rng) * deviation;
  return x;
}

// K and V of one head, in spans of their own formats, and what they decode to.
struct Head {
  explicit Head(int dim) : head_dim(dim) {}
  void add(const Encoding& e, const std::vector<float>& k, const std::vector<float>& v) {
    const int64_t rows = std::ssize(k) / head_dim;
    spans.push_back({side(e, k, all_k), side(e, v, all_v), rows});
  }
  Side side(const Encoding& e, const std::vector<float>& rows, std::vector<float>& all) {
    const int64_t bytes = unit_data_bytes(e, head_dim), meta_bytes = unit_meta_bytes(e, head_dim);
    const int64_t count = std::ssize(rows) / head_dim;
    auto data = std::make_unique<std::byte[]>(static_cast<size_t>(count * bytes));
    auto meta = std::make_unique<std::byte[]>(static_cast<size_t>(count * meta_bytes));
    for (int64_t i = 0; i < count; ++i)
      encode_unit(e, head_dim, &rows[static_cast<size_t>(i * head_dim)], data.get() + i * bytes,
                  meta.get() + i * meta_bytes);
    const Side stored{data.get(), meta_bytes ? meta.get() : nullptr, bytes, meta_bytes, e};
    std::vector<float> decoded(rows.size());
    decode_rows(stored, head_dim, 0, count, decoded.data());
    all.insert(all.end(), decoded.begin(), decoded.end());
    memory.push_back(std::move(data));
    memory.push_back(std::move(meta));
    return stored;
  }
  int head_dim;
  std::vector<Span> spans;
  std::vector<float> all_k, all_v;
  std::vector<std::unique_ptr<std::byte[]>> memory;
};

// What attend() makes of q [group, head_dim], and what FP64 does.
struct Outputs {
  Outputs(const Head& head, const std::vector<float>& q) : got(q.size()) {
    const int group = static_cast<int>(std::ssize(q)) / head.head_dim;
    const int64_t rows = std::ssize(head.all_k) / head.head_dim;
    const HeadQueries problem{
        .q = q.data(), .out = got.data(), .spans = head.spans, .group = group, .visible = rows};
    const size_t bytes = attention_workspace_bytes({&problem, 1}, head.head_dim);
    const std::unique_ptr<std::byte, void (*)(void*)> workspace(
        static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)), std::free);
    attend({&problem, 1}, head.head_dim, workspace.get());
    const size_t width = static_cast<size_t>(head.head_dim);
    for (size_t at = 0; at < q.size(); at += width) {
      const auto out = reference::attend({&q[at], width}, head.all_k, head.all_v, rows).out;
      want.insert(want.end(), out.begin(), out.end());
    }
  }
  std::vector<float> got;
  std::vector<double> want;
};

// Relative L2 distance.
double error_of(const Head& head, const std::vector<float>& q) {
  const Outputs outputs(head, q);
  double error = 0.0, norm = 0.0;
  for (size_t i = 0; i < outputs.want.size(); ++i) {
    error += std::pow(static_cast<double>(outputs.got[i]) - outputs.want[i], 2);
    norm += std::pow(outputs.want[i], 2);
  }
  return std::sqrt(error / norm);
}

struct Floats : testing::TestWithParam<std::string> {
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { force_isa("auto"); }
};
INSTANTIATE_TEST_SUITE_P(EveryIsa, Floats, testing::ValuesIn(available_isas()),
                         [](const auto& isa) { return isa.param; });

TEST_P(Floats, AgreeWithFp64) {
  for (const Encoding& e : {kF32, kF16, kBf16, kE4M3, kE5M2}) {
    for (const int head_dim : {8, 24, 32, 64, 80, 96, 128, 256}) {
      for (const int group : {1, 7}) {
        Head head(head_dim);
        head.add(e, gaussian(150 * head_dim, 1), gaussian(150 * head_dim, 2));
        EXPECT_LT(error_of(head, gaussian(group * head_dim, 3)), 2e-6)
            << encoding_name(e) << " head_dim " << head_dim << " group " << group;
      }
    }
  }
}

// Small keys under large queries and the other way round, and values of any magnitude.
TEST_P(Floats, AnyMagnitude) {
  for (const Encoding& e : {kF32, kBf16, kE4M3, kE5M2}) {
    for (const float keys : {0x1p-80f, 0x1p-20f, 0x1p6f, 0x1p20f, 0x1p80f}) {
      for (const float values : {0x1p-80f, 0x1p5f, 0x1p10f, 0x1p20f, 0x1p100f}) {
        Head head(128);
        head.add(e, gaussian(100 * 128, 1, keys), gaussian(100 * 128, 2, values));
        EXPECT_LT(error_of(head, gaussian(4 * 128, 3, 1.0f / keys)), 2e-6)
            << encoding_name(e) << " keys " << keys << " values " << values;
      }
    }
  }
}

// A row of small elements and one large is stored in FP8's subnormal numbers.
TEST_P(Floats, SubnormalCodes) {
  for (const Encoding& e : {kE4M3, kE5M2}) {
    const float small = e == kE4M3 ? 1e-5f : 1e-9f;
    std::vector<float> k = gaussian(70 * 64, 1, small), v = gaussian(70 * 64, 2, small);
    for (size_t row = 0; row < 70; ++row) k[row * 64 + 9] = v[row * 64 + 7] = 1.0f;
    std::vector<float> q = gaussian(4 * 64, 3, 1.0f / small);
    for (size_t i = 9; i < q.size(); i += 64) q[i] = 1.0f;
    Head head(64);
    head.add(e, k, v);
    const Outputs outputs(head, q);
    for (size_t i = 0; i < q.size(); ++i) {
      const double scale = i % 64 == 7 ? 1.0 : static_cast<double>(small);
      ASSERT_NEAR(outputs.got[i], outputs.want[i], 1e-5 * scale) << encoding_name(e) << " element " << i;
    }
  }
}

// Sums change their order with the format of values.
TEST_P(Floats, FormatsMayChangeWithinATile) {
  for (const int head_dim : {64, 96, 128}) {
    Head head(head_dim);
    unsigned seed = 1;
    for (int turn = 0; turn < 3; ++turn) {
      for (const Encoding& e : {kE4M3, kBf16, kF32, kE5M2, kF16}) {
        const int64_t n = (7 + 2 * turn) * head_dim;
        head.add(e, gaussian(n, seed), gaussian(n, seed + 1));
        seed += 2;
      }
    }
    EXPECT_LT(error_of(head, gaussian(6 * head_dim, 99)), 2e-6) << head_dim;
    head.add(kQ8, gaussian(5 * head_dim, 50), gaussian(5 * head_dim, 51));
    head.add(kE4M3, gaussian(5 * head_dim, 52), gaussian(5 * head_dim, 53));
    EXPECT_LT(error_of(head, gaussian(6 * head_dim, 99)), 2e-3) << head_dim;
  }
}

}  // namespace
}  // namespace kv
