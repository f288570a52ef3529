#include "harness/measure/timing.h"
#include "harness/measure/noise.h"

#include <gtest/gtest.h>

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iterator>
#include <memory>
#include <optional>
#include <vector>

namespace kv {
namespace {

constexpr int kRepetitions = 3;  // whose discards end before the last one

// Computes for a while in each run, and notes what run_interleaved() asks of it.
struct Spinning : measure::TimedTask {
  struct Notes {
    int begun = 0, runs = 0, discarded = 0, ended = 0;
    std::vector<int> times_discarded;
    std::vector<std::optional<double>> shares;
  };
  Spinning(Notes* told, bool again, double reported)
      : notes(told), can_begin_again(again), seconds(reported) {}
  int iterations() const override { return 8; }
  void begin(int) override { ++notes->begun; }
  double run() override {
    ++notes->runs;
    measure::Stopwatch watch;
    double spun = 0;
    while (spun < 0.02) spun += watch.lap();
    return seconds > 0 ? seconds : spun;
  }
  void end() override { ++notes->ended; }
  bool discard() override {
    notes->discarded += can_begin_again;
    return can_begin_again;
  }
  void record_disturbance(int times, std::optional<double> share) override {
    notes->times_discarded.push_back(times);
    notes->shares.push_back(share);
  }
  Notes* notes;
  bool can_begin_again;
  double seconds;  // that run() reports; 0: the true ones
};

Spinning::Notes notes_of(bool can_begin_again, double seconds) {
  Spinning::Notes notes;
  measure::TimedTasks tasks;
  tasks.push_back(std::make_unique<Spinning>(&notes, can_begin_again, seconds));
  EXPECT_TRUE(measure::run_interleaved(tasks, kRepetitions, [] { return false; }));
  return notes;
}

// A process that computes without end on the one core that this process may use, too, while it lives.
class Neighbour {
 public:
  Neighbour() {
    sched_getaffinity(0, sizeof all_, &all_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
      if (CPU_ISSET(core, &all_)) CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    child_ = fork();
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (volatile int turns = 0;;) turns = turns + 1;
    }
  }
  ~Neighbour() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    sched_setaffinity(0, sizeof all_, &all_);
  }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

 private:
  cpu_set_t all_;
  pid_t child_ = -1;
};

TEST(Timing, DisturbedRepetitionsAreTakenAgainUpToTheLimit) {
  const Neighbour neighbour;
  const Spinning::Notes notes = notes_of(true, 0);
  if (!measure::WaitMeter().counts()) {  // nothing is known of waits, so nothing is discarded
    EXPECT_EQ(notes.discarded, 0);
    EXPECT_EQ(notes.shares, (std::vector<std::optional<double>>(kRepetitions)));
    return;
  }
  const int most = std::size(measure::kMostDisturbed), all = kRepetitions * measure::kDiscardsForEach;
  EXPECT_EQ(notes.times_discarded, (std::vector<int>{most, all - most, 0}));
  EXPECT_EQ(notes.discarded, all);
  EXPECT_EQ(notes.begun, kRepetitions + all);
  EXPECT_EQ(notes.runs, 8 * notes.begun);
  EXPECT_EQ(notes.ended, kRepetitions);  // discarded ones do not end as those that count
  for (const std::optional<double>& share : notes.shares) {
    ASSERT_TRUE(share);
    EXPECT_GT(*share, 0.5);
    EXPECT_LE(*share, 1.0);
  }
}

TEST(Timing, WhatCannotBeginAgainIsTakenDisturbed) {
  const Neighbour neighbour;
  const Spinning::Notes notes = notes_of(false, 0);
  EXPECT_EQ(notes.begun, kRepetitions);
  EXPECT_EQ(notes.ended, kRepetitions);
  EXPECT_EQ(notes.times_discarded, std::vector<int>(kRepetitions, 0));
  if (measure::WaitMeter().counts()) {
    for (const std::optional<double>& share : notes.shares) EXPECT_GT(share.value_or(0), 0.5);
  }
}

// A run of a million seconds would have to wait for hours to be disturbed.
TEST(Timing, ShortWaitsDisturbNoLongRun) {
  const Neighbour neighbour;
  const Spinning::Notes notes = notes_of(true, 1e6);
  EXPECT_EQ(notes.discarded, 0);
  EXPECT_EQ(notes.begun, kRepetitions);
  if (measure::WaitMeter().counts()) {
    EXPECT_EQ(notes.shares, (std::vector<std::optional<double>>(kRepetitions, 0.0)));
  }
}

}  // namespace
}  // namespace kv
