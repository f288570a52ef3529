#include "harness/measure/timing.h"

#include <benchmark/benchmark.h>

#include <exception>
#include <vector>

namespace kv::measure {
namespace {

// Keeps Google Benchmark's table off the terminal; the tasks have the samples.
class Silent : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

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

bool run_interleaved(std::span<const std::unique_ptr<TimedTask>> tasks, int repetitions,
                     const std::function<bool()>& stop) {
  if (tasks.empty()) return true;  // Google Benchmark would complain on the terminal
  initialize_once();
  std::exception_ptr failure;
  bool stopped = false;
  std::vector<int> repetition(tasks.size(), 0);
  for (size_t i = 0; i < tasks.size(); ++i) {
    const auto body = [&, i](benchmark::State& state) {
      stopped = stopped || stop();
      bool ended = stopped || failure || !tasks[i]->goes_on();
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
      attempt([&] { tasks[i]->begin(repetition[i]++); });
      // Google Benchmark aborts if repetitions differ in their number of iterations, so an ended task's are counted
      // as well.
      for (auto _ : state) {
        double seconds = 1e-9;
        attempt([&] { seconds = tasks[i]->run(); });
        state.SetIterationTime(seconds);
      }
      attempt([&] { tasks[i]->end(); });
    };
    benchmark::RegisterBenchmark(tasks[i]->name().c_str(), body)
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
