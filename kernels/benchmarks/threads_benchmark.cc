// The number of rows from which threads pay, on a quiet machine and beside a busy neighbour: one hot decode
// step on one thread and on all, in interleaved blocks of steps. `ctest` does not run this.
//
//   one, all   median microseconds of a step on one thread, on all; a step that attend() thinks too small for threads
//              takes one in either case
//   ratio      all over one: below 1 threads pay
//   p99        of a step on all threads: what a descheduled thread makes the others wait
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/attention.h"
#include "kernels/benchmarks/benchmark.h"

namespace {

using namespace kv;
using namespace kv::bench;

// Works without a pause on one of the processors, as another program would.
class BusyNeighbour {
 public:
  BusyNeighbour()
      : thread_([this] {
          while (!stop_.load(std::memory_order_relaxed)) benchmark::DoNotOptimize(work_ += 1);
        }) {}
  ~BusyNeighbour() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  uint64_t work_ = 0;
  std::thread thread_;
};

double percentile(std::vector<double> x, double share) {
  const auto at = static_cast<size_t>(share * static_cast<double>(x.size() - 1));
  std::nth_element(x.begin(), x.begin() + static_cast<int64_t>(at), x.end());
  return x[at];
}

void steps_on_one_and_all(benchmark::State& state, const Codec& codec, const Shape& shape, bool beside) {
  constexpr int kBlock = 20;
  const int all_threads = omp_get_num_procs();
  const Plane k(codec.k, shape), v(codec.v, shape);
  const int64_t k_bytes = k.bytes(shape.kv_heads);
  const Buffer memory = allocate(k_bytes + v.bytes(shape.kv_heads));
  std::mt19937 rng(7);
  k.fill(memory.get(), shape, rng);
  v.fill(memory.get() + k_bytes, shape, rng);
  std::vector<float> q(static_cast<size_t>(shape.q_heads * shape.head_dim), 0.1f), out(q.size());
  const int group = shape.q_heads / shape.kv_heads;
  std::vector<Span> spans;
  for (int h = 0; h < shape.kv_heads; ++h) {
    spans.push_back({k.side(memory.get(), shape.kv_heads, h),
                     v.side(memory.get() + k_bytes, shape.kv_heads, h), shape.rows});
  }
  std::vector<HeadQueries> problems;
  for (int h = 0; h < shape.kv_heads; ++h) {
    const int64_t at = int64_t{h} * group * shape.head_dim;
    problems.push_back({.q = q.data() + at,
                        .out = out.data() + at,
                        .spans = std::span(spans).subspan(static_cast<size_t>(h), 1),
                        .group = group,
                        .visible = shape.rows});
  }
  const Buffer workspace =
      allocate(static_cast<int64_t>(attention_workspace_bytes(problems, shape.head_dim)));
  std::unique_ptr<BusyNeighbour> neighbour = beside ? std::make_unique<BusyNeighbour>() : nullptr;
  std::vector<double> one, all;
  for (auto _ : state) {
    for (auto [threads, times] : {std::pair(1, &one), std::pair(all_threads, &all)}) {
      omp_set_num_threads(threads);
      for (int i = 0; i < kBlock; ++i)
        times->push_back(seconds([&] { attend(problems, shape.head_dim, workspace.get()); }));
    }
  }
  state.counters["one"] = median(one) * 1e6;
  state.counters["all"] = median(all) * 1e6;
  state.counters["ratio"] = median(all) / median(one);
  state.counters["p99"] = percentile(all, 0.99) * 1e6;
}

}  // namespace

int main(int argc, char** argv) {
  for (const char* name : {"f32", "f16", "q4_0"}) {
    const Codec& codec = *std::ranges::find(kCodecs, std::string_view(name), &Codec::name);
    for (const int64_t rows : {16, 32, 64, 128, 256, 512, 1024, 4096}) {
      for (const bool beside : {false, true}) {
        const std::string title = std::string(name) + "/q32kv8/D128/S" + std::to_string(rows) +
                                  (beside ? "/beside_a_busy_neighbour" : "");
        benchmark::RegisterBenchmark(title.c_str(), [&codec, rows, beside](benchmark::State& state) {
          steps_on_one_and_all(state, codec, {32, 8, 128, rows}, beside);
        });
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
