#include "harness/measure/noise.h"
#include "harness/measure/time_columns.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/temp.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

TEST(Noise, CpuTimeIsThatOfTheFirstLine) {
  const test::TempFolder folder;
  const fs::path stat = folder / "stat";
  std::ofstream(stat) << "cpu  10 2 30 400 50 6 7 80 9 1\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
  const auto time = measure::cpu_time(stat);
  ASSERT_TRUE(time);
  EXPECT_EQ(time->total, 10 + 2 + 30 + 400 + 50 + 6 + 7 + 80);
  EXPECT_EQ(time->idle, 450);
  EXPECT_EQ(time->stolen, 80);
  std::ofstream(stat) << "cpu 1 2 3\n";
  EXPECT_FALSE(measure::cpu_time(stat));
  fs::remove(stat);
  EXPECT_FALSE(measure::cpu_time(stat));
}

results::Row timed(double low, double high) {
  results::Row row;
  row[measure::kStepP50Us] = (low + high) / 2;
  row[measure::kStepP50Us.low] = low;
  row[measure::kStepP50Us.high] = high;
  return row;
}

TEST(Noise, EachSourceIsNamed) {
  EXPECT_EQ(measure::noise_of(timed(100, 104)), "");
  EXPECT_EQ(measure::noise_of(timed(100, 200)),
            "the step's interval is wide: its upper end is 2.0 times its lower end");
  results::Row row = timed(100, 104);
  row[measure::kStealShare] = 0.021;
  EXPECT_EQ(measure::noise_of(row), "the hypervisor took 2 % of the processors");
  row[measure::kOthersShare] = 0.31;
  EXPECT_EQ(measure::noise_of(row),
            "the hypervisor took 2 % of the processors; other processes took 31 % of the processors");
  row = timed(100, 104);
  row[measure::kStealShare] = measure::kMostStealShare;
  row[measure::kOthersShare] = measure::kMostOthersShare;
  row[measure::kColdCeilingShare] = 1.05;
  EXPECT_EQ(measure::noise_of(row), "");
  row[measure::kColdCeilingShare] = 1.59;
  EXPECT_EQ(measure::noise_of(row), "cold reads reached 159 % of measured read bandwidth");
  row[measure::kStepP50Us].reset();
  EXPECT_EQ(measure::noise_of(row), "");
}

// Other processes' share of the machine says less than how many steps waited for them.
TEST(Noise, WaitsReplaceTheShareOfOthers) {
  results::Row row = timed(100, 104);
  row[measure::kOthersShare] = 0.31;
  row[measure::kDisturbedShare] = measure::kMostDisturbedShare;
  EXPECT_EQ(measure::noise_of(row), "");
  row[measure::kDisturbedShare] = 0.42;
  EXPECT_EQ(measure::noise_of(row), "other processes delayed 42 % of the steps");
}

TEST(Noise, WaitsAreThoseOfAllThreads) {
  const test::TempFolder folder;
  const fs::path tasks = folder / "tasks";
  fs::create_directories(tasks / "1");
  fs::create_directories(tasks / "2");
  std::ofstream(tasks / "1" / "schedstat") << "100 5000000000 3\n";
  std::ofstream(tasks / "2" / "schedstat") << "7 250000000 1\n";
  {
    const measure::WaitMeter waits(tasks);
    EXPECT_TRUE(waits.counts());
    EXPECT_DOUBLE_EQ(waits.seconds(), 5.25);
    std::ofstream(tasks / "2" / "schedstat") << "9 500000000 2\n";
    EXPECT_DOUBLE_EQ(waits.seconds(), 5.5);
  }
  fs::remove_all(tasks);
  const measure::WaitMeter none(tasks);
  EXPECT_FALSE(none.counts());
  EXPECT_EQ(none.seconds(), 0.0);
}

TEST(Noise, OnlyTimedRowsAreMarked) {
  std::vector<results::Row> rows{timed(100, 300), timed(100, 104), {}};
  const measure::NoiseMeter meter;
  EXPECT_TRUE(measure::mark_noise(rows, meter));
  EXPECT_NE(rows[0][measure::kNoise], "");
  EXPECT_FALSE(rows[2][measure::kStealShare]);
  EXPECT_EQ(rows[2][measure::kNoise], "");
}

results::Row compared(const char* variant, const char* verdict, double low, double high) {
  results::Row row = timed(100, 104);
  row[results::kVariant] = variant;
  row[results::kVerdict] = verdict;
  if (row[results::kVerdict] == "baseline") return row;
  row[results::kVersus] = "contiguous";
  row[measure::kRatioP50] = (low + high) / 2;
  row[measure::kRatioP50.low] = low;
  row[measure::kRatioP50.high] = high;
  return row;
}

// "doubling" is slower by its interval in each case; only a baseline that is quiet and equals itself lets it be called so.
TEST(Noise, ABaselineThatCannotBeTrustedGivesNoVerdict) {
  for (const bool noisy : {false, true}) {
    for (const double low : {0.95, 1.34}) {
      std::vector<results::Row> rows{
          compared("contiguous", "baseline", 1, 1), compared("contiguous", results::kAaVerdict, low, 6.91),
          compared("doubling", "slower", 1.2, 3), compared("concat", "faster", 0.2, 0.3),
          compared("paged", "slower", 1.5, 2)};
      rows[0][measure::kNoise] =
          noisy ? "the step's interval is wide: its upper end is 2.0 times its lower end" : "";
      rows[2][measure::kNoise] = "its own noise is no matter";
      rows[4][results::kVersus] = "contiguous/f16";  // another baseline
      std::vector<results::Row*> point;
      for (results::Row& row : rows) point.push_back(&row);
      measure::withhold_verdicts(point);
      const bool trusted = !noisy && low < 1;
      EXPECT_EQ(rows[0][results::kVerdict], "baseline");
      EXPECT_EQ(rows[1][results::kVerdict], results::kAaVerdict);
      EXPECT_EQ(rows[2][results::kVerdict], trusted ? "slower" : results::kUnreliable);
      EXPECT_EQ(rows[3][results::kVerdict], trusted ? "faster" : results::kUnreliable);
      EXPECT_EQ(rows[4][results::kVerdict], "slower");
    }
  }
}

// New rows are judged so when their noise is known.
TEST(Noise, IsJudgedWhenItIsMarked) {
  std::vector<results::Row> rows{compared("contiguous", "baseline", 1, 1),
                                 compared("doubling", "slower", 1.2, 3)};
  rows[0][measure::kStepP50Us.high] = 300;
  measure::mark_noise(rows, measure::NoiseMeter());
  EXPECT_EQ(rows[1][results::kVerdict], results::kUnreliable);
}

// A process's own work is not another's: two seconds of ticks, or the share would be made of rounding.
TEST(Noise, OwnWorkIsNotOthers) {
  const measure::NoiseMeter meter;
  const auto start = measure::cpu_time("/proc/stat");
  if (!start) GTEST_SKIP() << "no /proc/stat here";
  volatile double sum = 0;
  for (auto now = start; now->total - start->total < 60; now = measure::cpu_time("/proc/stat"))
    for (int i = 0; i < 100000; ++i) sum = sum + i;
  ASSERT_TRUE(meter.others_share());
  EXPECT_GE(*meter.others_share(), 0);
  EXPECT_LE(*meter.others_share(), 1.0);
}

}  // namespace
}  // namespace kv
