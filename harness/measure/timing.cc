#include "harness/measure/timing.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <exception>
#include <string>

#include "harness/measure/noise.h"

namespace kv::measure {
namespace {

// Keeps Google Benchmark's table off the terminal; the tasks have the samples.
class Silent : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

// Takes a repetition until other processes held it up in few of its runs, or until they did too often. At most `spare` are
// discarded, and taken off it.
void take_repetition(TimedTask& task, int repetition, const std::function<bool()>& stop, int& spare) {
  for (size_t discarded = 0;; ++discarded) {
    task.begin(repetition);
    const WaitMeter waits;
    const int runs = task.iterations();
    int disturbed = 0;
    double waited = waits.seconds();
    for (int i = 0; i < runs; ++i) {
      const double seconds = task.run(), now = waits.seconds();
      disturbed += now - waited > kDisturbedRun * seconds;
      waited = now;
    }
    const double share = static_cast<double>(disturbed) / std::max(1, runs);
    if (spare > 0 && discarded < std::size(kMostDisturbed) && share > kMostDisturbed[discarded] && !stop() &&
        task.discard()) {
      --spare;
      continue;
    }
    task.end();
    return task.record_disturbance(static_cast<int>(discarded),
                                   waits.counts() ? std::optional(share) : std::nullopt);
  }
}

void initialize_once() {
  static const bool done = [] {
    std::vector<std::string> words{"kvlab", "--benchmark_enable_random_interleaving=true"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    int argc = static_cast<int>(argv.size());
    benchmark::Initialize(&argc, argv.data());
    return true;
  }();
  (void)done;
}

}  // namespace

bool run_interleaved(const TimedTasks& tasks, int repetitions, const std::function<bool()>& stop) {
  if (tasks.empty()) return true;  // Google Benchmark would complain on the terminal
  initialize_once();
  std::exception_ptr failure;
  bool stopped = false;
  std::vector<int> repetition(tasks.size(), 0), spare(tasks.size(), kDiscardsForEach * repetitions);
  for (size_t i = 0; i < tasks.size(); ++i) {
    const auto body = [&, i](benchmark::State& state) {
      stopped = stopped || stop();
      bool ended = stopped || failure || !tasks[i]->is_active();
      const auto attempt = [&](const auto& part) {
        if (ended) return;
        try {
          part();
        } catch (...) {
          ended = true;
          try {
            tasks[i]->handle_exception();
          } catch (...) {
            failure = std::current_exception();
          }
        }
      };
      attempt([&] { take_repetition(*tasks[i], repetition[i]++, stop, spare[i]); });
      // Google Benchmark wants as many iterations as were registered. The tasks have the times.
      for (auto _ : state) state.SetIterationTime(1e-9);
    };
    benchmark::RegisterBenchmark("timed", body)
        ->Iterations(tasks[i]->iterations())
        ->Repetitions(repetitions)
        ->UseManualTime();
  }
  Silent silent;
  benchmark::RunSpecifiedBenchmarks(&silent, nullptr, "all");
  benchmark::ClearRegisteredBenchmarks();
  if (failure) std::rethrow_exception(failure);
  return !stopped;
}

}  // namespace kv::measure
