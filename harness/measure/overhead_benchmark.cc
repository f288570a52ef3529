// Measures the harness's own cost in a timed step: virtual calls, the ledger, span lists, clocks, recording and the
// merge of partial results, with the attention kernel left out. `ctest` does not run this; build and run
// `overhead_benchmark`.
#include <benchmark/benchmark.h>

#include "harness/measure/cell.h"
#include "kernels/cpu/isa.h"

namespace {

using namespace kv;

constexpr int64_t kTokens = 2048, kSteps = 64;

void step(benchmark::State& state, const char* isa) {
  const auto workload = std::shared_ptr<const workload::Workload>(
      workload::make_synthetic("gaussian", {.layers = 1, .q_heads = 32, .kv_heads = 8, .head_dim = 128}, 1));
  measure::Cell cell;
  cell.spec = parse_spec("contiguous/f16");
  cell.ledger = std::make_unique<memory::Ledger>();
  cell.cache = build_cache(
      cell.spec.fallback,
      {.layers = 1, .q_heads = 32, .kv_heads = 8, .head_dim = 128, .max_tokens = kTokens, .max_sequences = 2},
      *cell.ledger);
  cell.ids = {cell.cache->add_sequence()};
  workload::prefill(*cell.cache, *workload, cell.ids, 0, kTokens - kSteps);
  workload::TokenFeed feed(*workload, 1);
  feed.load(kTokens - kSteps, kSteps);
  cpu::force_isa(isa);
  for (auto _ : state) {
    const SequenceId fork = cell.cache->fork(cell.ids[0]);
    std::vector<measure::StepTimes> times;
    measure::Stopwatch watch;
    for (int64_t t = kTokens - kSteps; t < kTokens; ++t)
      times.push_back(cell.step(feed, t, {&fork, 1}, true));
    state.SetIterationTime(watch.lap() / kSteps);
    cell.cache->release(fork);
    benchmark::DoNotOptimize(times.data());
  }
  cpu::force_isa("auto");
}

}  // namespace

BENCHMARK_CAPTURE(step, with_attention, "auto")
    ->Iterations(20)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(step, without_attention, "none")
    ->Iterations(20)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_MAIN();
