// The roofline: what the machine's peaks count, what an attend is counted to do, and which bound holds.
#include "harness/measure/roofline.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>

#include "harness/measure/cell.h"
#include "harness/measure/roofline_tasks.h"
#include "harness/workload/workload.h"
#include "kernels/cpu/ceilings/fma_peak.h"
#include "kernels/cpu/isa.h"

namespace kv {
namespace {

TEST(Roofline, IsTheLongerOfTheTwoTimes) {
  const measure::Roofline memory = measure::roofline_of(20'000'000, 20.0, 0.9e-3);  // 20 MB at 20 GB/s: 1 ms
  EXPECT_STREQ(memory.limit, "memory");
  EXPECT_DOUBLE_EQ(memory.us, 1000.0);
  const measure::Roofline compute = measure::roofline_of(20'000'000, 20.0, 1.1e-3);
  EXPECT_STREQ(compute.limit, "compute");
  EXPECT_DOUBLE_EQ(compute.us, 1100.0);
}

TEST(Roofline, EachKindOfMultiplyAddHasItsPeak) {
  EXPECT_DOUBLE_EQ(measure::seconds_of({.floats = 3, .codes = 8}, {.floats = 2.0, .codes = 4.0}), 3.5);
  EXPECT_DOUBLE_EQ(measure::seconds_of({.floats = 3}, {.floats = 2.0}), 1.5);  // no codes, no peak
  EXPECT_DOUBLE_EQ(measure::seconds_of({.codes = 8}, {.codes = 4.0}), 2.0);
}

// Runs the rest of a test on one instruction set.
class Isa {
 public:
  explicit Isa(const std::string& name) { cpu::force_isa(name); }
  ~Isa() { cpu::force_isa("auto"); }
};

// A vector has two 16-bit lanes for each f32 lane, whatever its width.
TEST(Peaks, CountTheLanesOfEveryInstructionSetAndThread) {
  const int threads = omp_get_max_threads();
  for (const std::string& isa : cpu::available_isas()) {
    const Isa forced(isa);
    omp_set_num_threads(1);
    const double fma = cpu::run_fma(10), dot16 = cpu::run_dot16(10);
    EXPECT_GT(fma, 0.0) << isa;
    EXPECT_EQ(dot16, 2 * fma) << isa;
    EXPECT_EQ(cpu::run_dot16(20), 2 * dot16) << isa;
    omp_set_num_threads(2);
    EXPECT_EQ(cpu::run_dot16(10), 2 * dot16) << isa;
    EXPECT_EQ(cpu::run_fma(10), 2 * fma) << isa;
  }
  omp_set_num_threads(threads);
}

constexpr CacheShape kShape{.layers = 2, .q_heads = 6, .kv_heads = 2, .head_dim = 64, .max_tokens = 200};
constexpr int64_t kTokens = 150;

struct Filled {
  memory::Ledger ledger;
  std::unique_ptr<Cache> cache;
  std::vector<SequenceId> ids;

  explicit Filled(const std::string& spec) : cache(build_cache(parse_spec(spec), kShape, ledger)) {
    const auto workload =
        workload::make_synthetic("gaussian", {.layers = 2, .q_heads = 6, .kv_heads = 2, .head_dim = 64}, 1);
    ids = {cache->add_sequence()};
    workload::prefill(*cache, *workload, ids, 0, kTokens);
  }
};

measure::AttendWork work_of(const std::string& spec) {
  Filled filled(spec);
  return measure::attend_work(*filled.cache, filled.ids, filled.ledger);
}

// Summed over layers: a score and a weighted value for each query head and row.
constexpr int64_t multiply_adds(int64_t rows) {
  return 2 * kShape.layers * kShape.q_heads * rows * kShape.head_dim;
}

TEST(Work, IsCountedForEveryQueryHeadAndKeptRow) {
  const Isa vectors(cpu::available_isas().front());
  if (cpu::isa_is_scalar()) GTEST_SKIP() << "no vector path on this machine";
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
  const Isa vectors(cpu::available_isas().front());
  if (cpu::isa_is_scalar()) GTEST_SKIP() << "no vector path on this machine";
  const measure::MultiplyAdds split = work_of("contiguous/split(k=q8_0,v=f16)").multiply_adds;
  EXPECT_EQ(split.codes, multiply_adds(kTokens) / 2);
  EXPECT_EQ(split.floats, multiply_adds(kTokens) / 2);
  // 64 rows and what does not fill a group of 32 wait raw: 150 = 64 coded and 86 raw ones.
  const measure::MultiplyAdds kivi = work_of("contiguous/kivi(bits=4,group=32,residual=64)").multiply_adds;
  EXPECT_EQ(kivi.codes, multiply_adds(64));
  EXPECT_EQ(kivi.floats, multiply_adds(86));
}

TEST(Work, TheScalarPathDecodesAllRows) {
  const Isa scalar("scalar");
  EXPECT_EQ(work_of("contiguous/q8_0").multiply_adds.codes, 0);
  EXPECT_EQ(work_of("contiguous/q8_0").multiply_adds.floats, multiply_adds(kTokens));
}

// The reference loop for hot attention reads each byte that attention reads, once.
TEST(StoredRows, AreTheBytesThatAttentionReads) {
  for (const char* spec : {"contiguous", "contiguous(layout=bshd)/f16", "concat/q8_0", "doubling/q4_0",
                           "segmented(rows=16)/token(bits=3)", "paged(block=1,order=shuffled)/token(bits=4)",
                           "paged(block=32)/kivi(bits=2)", "tiered(hot=64,warm=64)/fp8",
                           "contiguous/kivi(bits=4,group=32,residual=64)", "contiguous/f16/ring(window=40)",
                           "contiguous/f32/h2o(heavy=16,recent=16)"}) {
    Filled filled(spec);
    const measure::AttendWork work = measure::attend_work(*filled.cache, filled.ids, filled.ledger);
    std::vector<cpu::ByteRange> rows = measure::stored_rows(*filled.cache, filled.ids);
    std::ranges::sort(rows, {}, &cpu::ByteRange::data);
    int64_t bytes = 0;
    const std::byte* end = nullptr;
    for (const cpu::ByteRange& range : rows) {
      EXPECT_LE(end, range.data) << spec << " reads a row twice";
      end = range.data + range.bytes;
      bytes += static_cast<int64_t>(range.bytes);
    }
    EXPECT_EQ(bytes, work.payload + work.metadata) << spec;
  }
}

}  // namespace
}  // namespace kv
