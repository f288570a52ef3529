// The roofline: what the machine's peaks count, what an attend is counted to do, and which bound holds.
#include "harness/bound.h"

#include <gtest/gtest.h>
#include <omp.h>

#include "harness/live_cell.h"
#include "harness/workload.h"
#include "kernels/cpu/isa.h"
#include "kernels/fma_peak.h"

namespace kv {
namespace {

TEST(Bound, IsTheLongerOfTheTwoTimes) {
  const Bound memory = bound_of(20'000'000, 20.0, 0.9e-3);  // 20 MB at 20 GB/s: 1 ms
  EXPECT_STREQ(memory.name, "memory");
  EXPECT_DOUBLE_EQ(memory.us, 1000.0);
  const Bound compute = bound_of(20'000'000, 20.0, 1.1e-3);
  EXPECT_STREQ(compute.name, "compute");
  EXPECT_DOUBLE_EQ(compute.us, 1100.0);
}

TEST(Bound, EachKindOfMultiplyAddHasItsPeak) {
  EXPECT_DOUBLE_EQ(seconds_of({.floats = 3, .codes = 8}, {.floats = 2.0, .codes = 4.0}), 3.5);
  EXPECT_DOUBLE_EQ(seconds_of({.floats = 3}, {.floats = 2.0}), 1.5);  // no codes, no peak
  EXPECT_DOUBLE_EQ(seconds_of({.codes = 8}, {.codes = 4.0}), 2.0);
}

// Runs the rest of a test on one instruction set.
class Isa {
 public:
  explicit Isa(const std::string& name) { force_isa(name); }
  ~Isa() { force_isa("auto"); }
};

// A vector has two 16-bit lanes for each f32 lane, whatever its width.
TEST(Peaks, CountTheLanesOfEveryInstructionSetAndThread) {
  const int threads = omp_get_max_threads();
  for (const std::string& isa : available_isas()) {
    const Isa forced(isa);
    omp_set_num_threads(1);
    const double fma = run_fma(10), dot16 = run_dot16(10);
    EXPECT_GT(fma, 0.0) << isa;
    EXPECT_EQ(dot16, 2 * fma) << isa;
    EXPECT_EQ(run_dot16(20), 2 * dot16) << isa;
    omp_set_num_threads(2);
    EXPECT_EQ(run_dot16(10), 2 * dot16) << isa;
    EXPECT_EQ(run_fma(10), 2 * fma) << isa;
  }
  omp_set_num_threads(threads);
}

constexpr CacheShape kShape{.layers = 2, .q_heads = 6, .kv_heads = 2, .head_dim = 64, .max_tokens = 200};
constexpr int64_t kTokens = 150;

AttendWork work_of(const std::string& spec) {
  Ledger ledger;
  const auto cache = build_cache(parse_spec(spec), kShape, ledger);
  const auto workload =
      make_synthetic("gaussian", {.layers = 2, .q_heads = 6, .kv_heads = 2, .head_dim = 64}, 1);
  const std::vector<SequenceId> ids{cache->add_sequence()};
  prefill(*cache, *workload, ids, 0, kTokens);
  return attend_work(*cache, ids);
}

// Of all layers: a score and a weighted value for each query head and row.
constexpr int64_t multiply_adds(int64_t rows) {
  return 2 * kShape.layers * kShape.q_heads * rows * kShape.head_dim;
}

TEST(Work, IsCountedForEveryQueryHeadAndKeptRow) {
  const Isa vectors(available_isas().front());
  if (isa_is_scalar()) GTEST_SKIP() << "no vector path on this machine";
  for (const char* spec : {"contiguous", "paged/f16", "doubling/fp8", "contiguous/token(bits=3)",
                           "contiguous/q8_0(read=copy)"}) {
    EXPECT_EQ(work_of(spec).multiply_adds.floats, multiply_adds(kTokens)) << spec;
    EXPECT_EQ(work_of(spec).multiply_adds.codes, 0) << spec;
  }
  for (const char* spec :
       {"contiguous/q8_0", "contiguous/q4_0", "paged/token(bits=8)", "contiguous/token(bits=2)"}) {
    EXPECT_EQ(work_of(spec).multiply_adds.codes, multiply_adds(kTokens)) << spec;
    EXPECT_EQ(work_of(spec).multiply_adds.floats, 0) << spec;
  }
  EXPECT_EQ(work_of("contiguous/f16/ring(window=40)").multiply_adds.floats, multiply_adds(40));
}

TEST(Work, SidesAndTailsAreOfTheirOwnKinds) {
  const Isa vectors(available_isas().front());
  if (isa_is_scalar()) GTEST_SKIP() << "no vector path on this machine";
  const MultiplyAdds split = work_of("contiguous/split(k=q8_0,v=f16)").multiply_adds;
  EXPECT_EQ(split.codes, multiply_adds(kTokens) / 2);
  EXPECT_EQ(split.floats, multiply_adds(kTokens) / 2);
  // 64 rows and what does not fill a group of 32 wait raw: 150 = 64 coded and 86 raw ones.
  const MultiplyAdds kivi = work_of("contiguous/kivi(bits=4,group=32,residual=64)").multiply_adds;
  EXPECT_EQ(kivi.codes, multiply_adds(64));
  EXPECT_EQ(kivi.floats, multiply_adds(86));
}

TEST(Work, TheScalarPathDecodesAllRows) {
  const Isa scalar("scalar");
  EXPECT_EQ(work_of("contiguous/q8_0").multiply_adds.codes, 0);
  EXPECT_EQ(work_of("contiguous/q8_0").multiply_adds.floats, multiply_adds(kTokens));
}

}  // namespace
}  // namespace kv
