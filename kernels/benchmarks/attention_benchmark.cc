// The speed of attend() against a plain read: one decode step over cold rows, interleaved with a read of as
// many bytes. `ctest` does not run this; build and run `attention_benchmark`, for example with
// --benchmark_filter='q4_0.*/S8192'.
//
//   GB/s              stored bytes of K and V that one step covers, over its time
//   share             that, over what the read reached in the same turns (medians)
//   items_per_second  stored rows of all KV heads, K and V together
//   error             relative L2 distance of one head's output from FP64 on the stored values
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/benchmarks/benchmark.h"
#include "kernels/cpu/ceilings/stream.h"
#include "kernels/encode.h"

namespace {

using namespace kv;
using namespace kv::bench;

// Query head `head` of `q` against its spans, in FP64.
double relative_error(const Shape& s, const HeadQueries& problem, int head) {
  const float* q = problem.q + head * s.head_dim;
  std::vector<float> k(static_cast<size_t>(s.rows * s.head_dim)), v(k.size());
  decode_rows(problem.spans[0].k, s.head_dim, 0, s.rows, k.data());
  decode_rows(problem.spans[0].v, s.head_dim, 0, s.rows, v.data());
  std::vector<double> out(static_cast<size_t>(s.head_dim)), score(static_cast<size_t>(s.rows));
  double max = -INFINITY, total = 0, error = 0, norm = 0;
  for (int64_t j = 0; j < s.rows; ++j) {
    double dot = 0;
    for (int d = 0; d < s.head_dim; ++d)
      dot += static_cast<double>(q[d]) * static_cast<double>(k[static_cast<size_t>(j * s.head_dim + d)]);
    max = std::max(max, score[static_cast<size_t>(j)] = dot / std::sqrt(s.head_dim));
  }
  for (int64_t j = 0; j < s.rows; ++j) {
    const double p = std::exp(score[static_cast<size_t>(j)] - max);
    total += p;
    for (int d = 0; d < s.head_dim; ++d)
      out[static_cast<size_t>(d)] += p * static_cast<double>(v[static_cast<size_t>(j * s.head_dim + d)]);
  }
  for (int d = 0; d < s.head_dim; ++d) {
    const double want = out[static_cast<size_t>(d)] / total;
    const double got = static_cast<double>(problem.out[head * s.head_dim + d]);
    error += (got - want) * (got - want);
    norm += want * want;
  }
  return std::sqrt(error / norm);
}

void decode_step(benchmark::State& state, const Codec& codec, const Shape& shape, int threads, bool hot) {
  constexpr int64_t kColdBytes = int64_t{256} << 20;  // several times a last-level cache
  const Plane k(codec.k, shape), v(codec.v, shape);
  const int64_t replica_bytes = k.bytes(shape.kv_heads) + v.bytes(shape.kv_heads);
  const int64_t replicas = hot ? 1 : std::max<int64_t>(2, (kColdBytes + replica_bytes - 1) / replica_bytes);
  std::mt19937 rng(7);
  const Buffer memory = allocate(replica_bytes * replicas);
  for (int64_t i = 0; i < replicas; ++i) {
    k.fill(memory.get() + i * replica_bytes, shape, rng);
    v.fill(memory.get() + i * replica_bytes + k.bytes(shape.kv_heads), shape, rng);
  }
  std::vector<float> q(static_cast<size_t>(shape.q_heads * shape.head_dim)), out(q.size());
  std::normal_distribution<float> normal;
  for (float& x : q) x = normal(rng);
  const int group = shape.q_heads / shape.kv_heads;
  std::vector<std::vector<Span>> spans(static_cast<size_t>(replicas * shape.kv_heads));
  std::vector<std::vector<HeadQueries>> problems(static_cast<size_t>(replicas));
  for (int64_t i = 0; i < replicas; ++i) {
    const std::byte* base = memory.get() + i * replica_bytes;
    for (int h = 0; h < shape.kv_heads; ++h) {
      auto& list = spans[static_cast<size_t>(i * shape.kv_heads + h)];
      list = {{k.side(base, shape.kv_heads, h), v.side(base + k.bytes(shape.kv_heads), shape.kv_heads, h),
               shape.rows}};
      const int64_t at = int64_t{h} * group * shape.head_dim;
      problems[static_cast<size_t>(i)].push_back(
          {.q = q.data() + at, .out = out.data() + at, .spans = list, .group = group, .visible = shape.rows});
    }
  }
  const Buffer workspace =
      allocate(static_cast<int64_t>(attention_workspace_bytes(problems[0], shape.head_dim)));
  omp_set_num_threads(threads);
  std::vector<double> attends, reads;
  int64_t turn = 0;
  attend(problems[0], shape.head_dim, workspace.get());
  for (auto _ : state) {
    const auto& now = problems[static_cast<size_t>(turn++ % replicas)];
    attends.push_back(seconds([&] { attend(now, shape.head_dim, workspace.get()); }));
    const std::byte* other = memory.get() + turn++ % replicas * replica_bytes;
    reads.push_back(
        seconds([&] { benchmark::DoNotOptimize(cpu::read_all(other, static_cast<size_t>(replica_bytes))); }));
    state.SetIterationTime(attends.back());
  }
  const double attend_s = median(attends), read_s = median(reads);
  state.counters["GB/s"] = static_cast<double>(replica_bytes) / attend_s * 1e-9;
  state.counters["read"] = static_cast<double>(replica_bytes) / read_s * 1e-9;
  state.counters["share"] = read_s / attend_s;
  state.counters["us"] = attend_s * 1e6;
  state.SetItemsProcessed(state.iterations() * shape.kv_heads * shape.rows);
  if (shape.rows <= 1 << 17) {
    attend(problems[0], shape.head_dim, workspace.get());
    state.counters["error"] = relative_error(shape, problems[0][0], 0);
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (const int kv_heads : {8, 32}) {
    for (const int head_dim : {64, 128, 256}) {
      for (const int64_t rows : {512, 2048, 8192, 32768}) {
        for (const Codec& codec : kCodecs) {
          for (const int threads : {1, 2}) {
            for (const bool hot : {false, true}) {
              const Shape shape{32, kv_heads, head_dim, rows};
              const std::string name = std::string(codec.name) + "/q32kv" + std::to_string(kv_heads) + "/D" +
                                       std::to_string(head_dim) + "/S" + std::to_string(rows) + "/t" +
                                       std::to_string(threads) + (hot ? "/hot" : "/cold");
              benchmark::RegisterBenchmark(name.c_str(), [&codec, shape, threads,
                                                          hot](benchmark::State& state) {
                decode_step(state, codec, shape, threads, hot);
              })->UseManualTime();
            }
          }
        }
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
