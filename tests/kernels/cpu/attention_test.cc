// Attention beside its table of cases: workspaces, callers, names, the exponential, and the numbers under it.
#include "kernels/attention.h"

#include <omp.h>

#include "kernels/math.h"
#include "tests/kernels/cpu/every_isa.h"
#include "tests/kernels/paged_head.h"

namespace kv::attention_test {
namespace {

using namespace test;

using Attention = EveryIsa;
INSTANTIATE_TEST_SUITE_P(EveryIsa, Attention, every_isa(), isa_name);

TEST(Attention, WorkspaceDoesNotGrowWithThePrompt) {
  const auto bytes = [](int64_t tokens, float* mass) {
    const HeadQueries problem{.spans = {}, .group = 4, .n = tokens, .visible = 1, .attention_weights = mass};
    return attention_workspace_bytes({&problem, 1}, 64);
  };
  EXPECT_EQ(bytes(256, nullptr), bytes(128, nullptr));
  EXPECT_EQ(bytes(1 << 20, nullptr), bytes(128, nullptr));
  // The weights that a retention asks for are those of the held queries, and a base a tile: linear, not
  // quadratic.
  float mass = 0.0f;
  EXPECT_EQ(bytes(2048, &mass) - bytes(1024, &mass),
            kHeldQueries * (1024 + 1024 / kTileRows) * sizeof(float));
}

TEST_P(Attention, HalfConversionEqualsTheScalarOneBitForBit) {
  std::vector<float> from;
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += 997) {
    from.push_back(std::bit_cast<float>(bits));
    from.push_back(-std::bit_cast<float>(bits));
  }
  from.insert(from.begin(),
              {INFINITY, -INFINITY, 0.0f, -0.0f, 65519.996f, 65520.0f, 0x1p-25f, 0x1.000002p-25f, 0x1p-24f});
  from.resize(from.size() / 8 * 8);
  std::vector<uint16_t> to(from.size());
  for (size_t i = 0; i < from.size(); i += 8)
    encode_unit(kF16, 8, &from[i], reinterpret_cast<std::byte*>(&to[i]), nullptr);
  for (size_t i = 0; i < from.size(); ++i) ASSERT_EQ(to[i], f32_to_f16(from[i])) << from[i];
}

TEST(Math, HalfRoundTripsExactlyAndRoundsToNearestEven) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float f = f16_to_f32(static_cast<uint16_t>(h));
    if (std::isnan(f)) continue;
    ASSERT_EQ(f32_to_f16(f), h);
  }
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f), 0x3c00);             // halfway: to even, down
  EXPECT_EQ(f32_to_f16(1.0f + 3 * 0x1p-11f), 0x3c02);         // halfway: to even, up
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f + 0x1p-20f), 0x3c01);  // above halfway
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(NAN))));
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(NAN))));
}

TEST(Math, MergingWithNothingChangesNothing) {
  SoftmaxState a{1.5f, 2.0f};
  const MergeFactors f = merge(a, SoftmaxState());
  EXPECT_EQ(a.max, 1.5f);
  EXPECT_EQ(a.sum, 2.0f);
  EXPECT_EQ(f.a, 1.0f);
  EXPECT_EQ(f.b, 0.0f);
  SoftmaxState none;
  merge(none, SoftmaxState());
  EXPECT_EQ(none.sum, 0.0f);
}

TEST(Isa, AnUnknownOneIsRefusedWithTheList) {
  EXPECT_THROW(cpu::force_isa("mmx"), std::invalid_argument);
  EXPECT_EQ(cpu::active_isa(), cpu::available_isas().front());
}

// Outputs of queries [n, head_dim], the last rows' own.
std::vector<float> run(const PagedHead& head, const std::vector<float>& q, int64_t n) {
  std::vector<float> out(q.size(), NAN);
  const std::vector<Span> spans = head.spans();
  const HeadQueries problem{
      .q = q.data(), .out = out.data(), .spans = spans, .n = n, .visible = head.rows() - n + 1};
  const Bytes workspace(static_cast<int64_t>(attention_workspace_bytes({&problem, 1}, head.layout.head_dim)));
  attend({&problem, 1}, head.layout.head_dim, workspace.get());
  return out;
}

// Callers run several attentions in an OpenMP loop, as over windows of a text. In a team of one, attention's
// own loops could end the caller's.
TEST_P(Attention, LoopsOfItsCallerGoOn) {
  PagedHead head(same(kF32), 64, kContiguous, 100);
  head.fill(gaussian(100 * 64, 1), gaussian(100 * 64, 2));
  const std::vector<float> q = gaussian(64, 3), want = run(head, q, 1);
  const int threads = omp_get_max_threads();
  for (const int team : {1, 2}) {
    std::vector<std::vector<float>> got(5);
    omp_set_num_threads(team);
#pragma omp parallel for schedule(dynamic, 1)
    for (auto& one : got) one = run(head, q, 1);
    omp_set_num_threads(threads);
    for (const auto& one : got) EXPECT_EQ(one, want) << team;
  }
}

// Two rows, of which the second one's score is less by x: its weight is exp(-x) of the first one's.
TEST_P(Attention, ExponentialOfPrefillIsWithinAFewUnitsInTheLastPlace) {
  constexpr size_t kRows = 33, kTokens = 32, kHeadDim = 8;
  std::vector<float> k(kRows * kHeadDim), v(k.size());
  for (size_t row = 0; row < kRows; ++row) k[row * kHeadDim + 1] = -1000.0f;
  k[1] = k[9] = 0.0f;
  k[8] = -1.0f;
  v[0] = v[9] = 1.0f;
  PagedHead head(same(kF32), kHeadDim, kContiguous, kRows);
  head.fill(k, v);
  for (float x = 0.0f; x < 80.0f; x += 0.37f) {
    std::vector<float> q(kTokens * kHeadDim);
    for (size_t t = 0; t < kTokens; ++t) {
      q[t * kHeadDim] = x * std::sqrt(8.0f);
      q[t * kHeadDim + 1] = 1.0f;  // all other rows' scores are -1000 / sqrt(8)
    }
    const std::vector<float> out = run(head, q, kTokens);
    const double want = std::exp(-double{q[0]} / std::sqrt(8.0));
    // The score itself is rounded twice, relatively: so its exponential is off by as much times x.
    EXPECT_NEAR(double{out[1]} / double{out[0]}, want, want * (4.0 + 2.0 * double{x}) * 0x1p-24) << x;
  }
}

TEST_P(Attention, PrefillIsWhatRunsFromThatManyTokensOn) {
  const bool tiled = GetParam() != "scalar";
  EXPECT_EQ(attention_kernel_name(kF16, kF16, kPrefillTokens),
            GetParam() + (tiled ? "/prefill/f16" : "/f16"));
  EXPECT_EQ(attention_kernel_name(kF16, kF16, kPrefillTokens - 1), GetParam() + "/f16");
}

}  // namespace
}  // namespace kv::attention_test
