// The speed of attend() against the machine's multiply-add peak: a prompt of S tokens, whole or in chunks,
// interleaved with a loop of multiply-adds in registers and with Eigen's products of the same matrices.
// `ctest` does not run this; build and run `prefill_benchmark`, for example with
// --benchmark_filter='D128/S2048/whole/t1'. A first argument --isa=avx2 forces an instruction set.
//
//   GFLOP/s           4 * head_dim operations for each pair of a query and a row that it sees, over the
//   median
//                     time
//   share             that, over the best that the loop reached in the same turns (peak)
//   vs_eigen          that, over what Eigen reached for q k^T and its product with v alone: no softmax, and
//   no
//                     mask but that blocks of queries leave out rows that none of them sees (operations as
//                     executed)
//   GB/s              stored bytes of K and V, over the median time
//   items_per_second  the prompt's tokens
//   error             relative L2 distance of some outputs from FP64
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/benchmarks/benchmark.h"
#include "kernels/benchmarks/eigen_gemm.h"
#include "kernels/cpu/ceilings/fma_peak.h"
#include "kernels/cpu/isa.h"
#include "kernels/encode.h"
#include "kernels/format/encoding.h"

namespace {

using namespace kv;
using bench::allocate, bench::Buffer, bench::median, bench::seconds;

struct Shape {
  int q_heads, kv_heads, head_dim;
  int64_t tokens, chunk;
  int group() const { return q_heads / kv_heads; }
};

struct Codec {
  const char* name;
  Encoding encoding;
};
constexpr Codec kCodecs[] = {{"f32", {}},
                             {"f16", {Format::kF16, 16}},
                             {"fp8", {Format::kFp8E4M3, 8}},
                             {"q8_0", {Format::kQ8_0, 8}},
                             {"token4", {Format::kToken, 4, 1, true}}};

std::vector<float> gaussian(int64_t count, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = normal(rng);
  return values;
}

// One side's rows of all heads.
struct Rows {
  std::vector<float> values;  // [kv_heads, tokens, head_dim], as given
  Encoding encoding;
  int64_t data_bytes, meta_bytes, tokens;
  int head_dim;
  Buffer data, meta;
  Rows(const Encoding& e, const Shape& s, std::mt19937& rng)
      : values(gaussian(s.kv_heads * s.tokens * s.head_dim, rng)),
        encoding(e),
        data_bytes(unit_data_bytes(e, s.head_dim)),
        meta_bytes(unit_meta_bytes(e, s.head_dim)),
        tokens(s.tokens),
        head_dim(s.head_dim) {
    const int64_t rows = s.kv_heads * tokens;
    data = allocate(rows * data_bytes);
    meta = allocate(rows * meta_bytes);
    for (int64_t i = 0; i < rows; ++i) {
      encode_unit(e, s.head_dim, values.data() + i * s.head_dim, data.get() + i * data_bytes,
                  meta.get() + i * meta_bytes);
    }
  }
  int64_t bytes() const { return std::ssize(values) * (data_bytes + meta_bytes) / head_dim; }
  Side side(int head) const {
    return {.data = data.get() + head * tokens * data_bytes,
            .meta = meta_bytes ? meta.get() + head * tokens * meta_bytes : nullptr,
            .stride = data_bytes,
            .meta_stride = meta_bytes,
            .encoding = encoding};
  }
};

// A prompt as attend() is given it: a step a chunk, a problem a kv head.
struct Prompt {
  Shape shape;
  Rows k, v;
  std::vector<float> q, out;  // [chunks] of [q_heads, n, head_dim]
  std::vector<Span> spans;    // [kv_heads]
  std::vector<std::vector<HeadQueries>> steps;
  Buffer workspace;

  Prompt(const Shape& s, const Encoding& e, std::mt19937& rng)
      : shape(s),
        k(e, s, rng),
        v(e, s, rng),
        q(gaussian(s.q_heads * s.tokens * s.head_dim, rng)),
        out(q.size()) {
    for (int h = 0; h < s.kv_heads; ++h) spans.push_back({k.side(h), v.side(h), s.tokens});
    size_t most = 0;
    for (int64_t first = 0; first < s.tokens; first += s.chunk) {
      const int64_t n = std::min(s.chunk, s.tokens - first);
      auto& step = steps.emplace_back();
      for (int h = 0; h < s.kv_heads; ++h) {
        const int64_t at = (s.q_heads * first + int64_t{h} * s.group() * n) * s.head_dim;
        step.push_back({.q = q.data() + at,
                        .out = out.data() + at,
                        .spans = {&spans[static_cast<size_t>(h)], 1},
                        .group = s.group(),
                        .n = n,
                        .visible = first + 1});
      }
      most = std::max(most, attention_workspace_bytes(step, s.head_dim));
    }
    workspace = allocate(static_cast<int64_t>(most));
  }
  void attend_all() {
    for (const auto& step : steps) attend(step, shape.head_dim, workspace.get());
  }
};

double operations(const Shape& s) {
  return 4.0 * s.q_heads * s.head_dim * static_cast<double>(s.tokens) * static_cast<double>(s.tokens + 1) / 2;
}

// Eigen's products of the same matrices, in blocks of queries over the rows that the last of them sees.
// Returns the operations.
double run_eigen(Prompt& p, std::vector<std::vector<float>>& scores) {
  constexpr int64_t kBlock = 256;
  const Shape& s = p.shape;
  const int64_t blocks = (s.tokens + kBlock - 1) / kBlock;
  double done = 0;
#pragma omp parallel for schedule(dynamic, 1) reduction(+ : done)
  for (int64_t i = 0; i < s.q_heads * blocks; ++i) {
    const int64_t head = i % s.q_heads, first = (blocks - 1 - i / s.q_heads) * kBlock;
    const int64_t n = std::min(kBlock, s.tokens - first), rows = first + n;
    const int64_t at = head * s.tokens * s.head_dim, kv = head / s.group() * s.tokens * s.head_dim;
    std::vector<float>& room = scores[static_cast<size_t>(omp_get_thread_num())];
    room.resize(static_cast<size_t>(kBlock * s.tokens));
    eigen_gemms(p.q.data() + at + first * s.head_dim, p.k.values.data() + kv, p.v.values.data() + kv, n, rows,
                s.head_dim, room.data(), p.out.data() + at + first * s.head_dim);
    done += 4.0 * static_cast<double>(n * rows * s.head_dim);
  }
  return done;
}

// Outputs of some tokens of the last step's first problem, against FP64 on the stored values.
double relative_error(const Prompt& p) {
  const HeadQueries& problem = p.steps.back().front();
  const int d = p.shape.head_dim;
  std::vector<float> k(static_cast<size_t>(p.shape.tokens * d)), v(k.size());
  decode_rows(p.spans.front().k, d, 0, p.shape.tokens, k.data());
  decode_rows(p.spans.front().v, d, 0, p.shape.tokens, v.data());
  double error = 0, norm = 0;
  for (int64_t t = problem.n - 1; t >= 0; t -= 101) {
    const float* q = problem.q + t * d;
    double total = 0;
    std::vector<double> out(static_cast<size_t>(d));
    for (int64_t j = 0; j < problem.visible + t; ++j) {
      double dot = 0;
      for (int i = 0; i < d; ++i) dot += double{q[i]} * double{k[static_cast<size_t>(j * d + i)]};
      const double weight = std::exp(dot / std::sqrt(d));
      total += weight;
      for (int i = 0; i < d; ++i)
        out[static_cast<size_t>(i)] += weight * double{v[static_cast<size_t>(j * d + i)]};
    }
    for (int i = 0; i < d; ++i) {
      const double want = out[static_cast<size_t>(i)] / total, got = double{problem.out[t * d + i]};
      error += (got - want) * (got - want);
      norm += want * want;
    }
  }
  return std::sqrt(error / norm);
}

void prefill(benchmark::State& state, const Codec& codec, const Shape& shape, int threads) {
  constexpr int64_t kRounds = 400'000;  // a millisecond or so: short enough to be left alone now and then
  constexpr int kLoops = 8;
  omp_set_num_threads(threads);
  std::mt19937 rng(7);
  Prompt prompt(shape, codec.encoding, rng);
  std::vector<std::vector<float>> scores(static_cast<size_t>(threads));
  std::vector<double> prefills, eigens;
  double peak = 0, eigen_operations = 0;
  for (auto _ : state) {
    for (int i = 0; i < kLoops; ++i) {
      double loop_operations = 0;
      const double loop = seconds([&] { loop_operations = cpu::run_fma(kRounds); });
      peak = std::max(peak, loop_operations / loop);
    }
    eigens.push_back(seconds([&] { eigen_operations = run_eigen(prompt, scores); }));
    prefills.push_back(seconds([&] { prompt.attend_all(); }));
    state.SetIterationTime(prefills.back());
  }
  const double prefill_s = median(prefills), flops = operations(shape) / prefill_s;
  state.counters["GFLOP/s"] = flops * 1e-9;
  state.counters["peak"] = peak * 1e-9;
  state.counters["share"] = flops / peak;
  state.counters["vs_eigen"] = flops / (eigen_operations / median(eigens));
  state.counters["GB/s"] = static_cast<double>(prompt.k.bytes() + prompt.v.bytes()) / prefill_s * 1e-9;
  state.counters["error"] = relative_error(prompt);
  state.SetItemsProcessed(state.iterations() * shape.tokens);
  state.SetLabel(attention_kernel_name(codec.encoding, codec.encoding, shape.chunk));
}

void add(const Codec& codec, const Shape& s, int threads) {
  const std::string name =
      std::string(codec.name) + "/q" + std::to_string(s.q_heads) + "kv" + std::to_string(s.kv_heads) + "/D" +
      std::to_string(s.head_dim) + "/S" + std::to_string(s.tokens) +
      (s.chunk < s.tokens ? "/chunk" + std::to_string(s.chunk) : "/whole") + "/t" + std::to_string(threads);
  const auto run = [&codec, s, threads](benchmark::State& state) { prefill(state, codec, s, threads); };
  benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]).starts_with("--isa=")) {
    cpu::force_isa(argv[1] + std::string("--isa=").size());
    std::rotate(argv + 1, argv + 2, argv + argc--);
  }
  for (const Codec& codec : kCodecs) {
    for (const int q_heads : {8, 32}) {
      for (const int head_dim : {64, 128, 256}) {
        for (const int64_t tokens : {2048, 4096}) {
          for (const int64_t chunk : {tokens, int64_t{512}}) {
            for (const int threads : {1, 2}) add(codec, {q_heads, 8, head_dim, tokens, chunk}, threads);
          }
        }
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
