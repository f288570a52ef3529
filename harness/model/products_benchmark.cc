// Matrix products of a decode step beside a plain read of the same weights: read_share is what kernels/LOG.md reports. Weights
// are a gigabyte, so that no cache holds them. And products of the rows of many caches side by side, at SmolLM2-135M's
// shapes, beside a plain f32 BLAS: blas_share. `ctest` does not run this; build and run `products_benchmark`.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <span>
#include <vector>

#include "harness/memory/ledger.h"
#include "harness/model/products.h"
#include "harness/model/weights.h"
#include "kernels/cpu/ceilings/stream.h"

namespace {

using namespace kv;

constexpr int64_t kRows = 8192, kCols = 2048, kBytes = int64_t{1} << 30;

double seconds(const auto& work) {
  const double start = omp_get_wtime();
  work();
  return omp_get_wtime() - start;
}

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + std::ssize(x) / 2, x.end());
  return x[x.size() / 2];
}

// Reads and products take turns, so that what drifts on the machine hits both.
void products(benchmark::State& state, model::WeightMatrix::Type type) {
  const int64_t size = type == model::WeightMatrix::Type::kF32 ? 4 : 2, one = kRows * kCols * size;
  memory::Ledger ledger;
  const Block block(ledger, kBytes, ByteKind::kPayload);
  std::fill_n(block.data(), kBytes, std::byte{0x3c});
  const model::Matrix x = model::Matrix::Constant(state.range(0), kCols, 0.25f);
  std::vector<double> reads, multiplies;
  for (auto _ : state) {
    reads.push_back(seconds([&] { benchmark::DoNotOptimize(cpu::read_all(block.data(), kBytes)); }));
    multiplies.push_back(seconds([&] {
      for (int64_t at = 0; at < kBytes; at += one)
        benchmark::DoNotOptimize(model::WeightMatrix(block.data() + at, type, kRows, kCols).apply(x).data());
    }));
    state.SetIterationTime(multiplies.back());
  }
  state.SetLabel(model::product_library());
  state.counters["gbps"] = static_cast<double>(kBytes) / median(multiplies) * 1e-9;
  state.counters["read_gbps"] = static_cast<double>(kBytes) / median(reads) * 1e-9;
  state.counters["read_share"] = median(reads) / median(multiplies);
}

struct Shape {
  int64_t rows, cols;
};
// Products of one input, which threads form together.
constexpr Shape kQkv[] = {{576, 576}, {192, 576}, {192, 576}}, kOut[] = {{576, 576}},
                kUpGate[] = {{1536, 576}, {1536, 576}}, kDown[] = {{576, 1536}},
                kClassifier[] = {{49152, 576}};
constexpr int kLayers = 30;

// A plain BLAS: one call a matrix, in which each thread multiplies an even share of its rows.
void blas(const model::Matrix& x, const model::WeightMatrix& w, model::Matrix& y) {
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), me = omp_get_thread_num(), first = w.rows() * me / threads,
                  last = w.rows() * (me + 1) / threads;
    model::multiply(x.data(), x.rows(), reinterpret_cast<const float*>(w.data()) + first * w.cols(),
                    last - first, w.cols(), y.data() + first, w.rows());
  }
}

// The weights are those of kLayers layers, or of one classifier, all apart.
void side_by_side(benchmark::State& state, std::span<const Shape> shapes, bool in_bf16) {
  if (in_bf16 && !model::can_multiply_bf16()) return state.SkipWithError("no instructions for bf16");
  const int copies = shapes.data() == kClassifier ? 1 : kLayers;
  const int64_t n = state.range(0), cols = shapes.front().cols;
  int64_t values = 0;
  for (const Shape& s : shapes) values += copies * s.rows * s.cols;
  std::vector<float> weights(static_cast<size_t>(values), 0.01f);
  std::vector<uint16_t> narrow(static_cast<size_t>(values), 0x3c24);
  std::vector<model::WeightMatrix> wide_matrices, matrices;
  const auto* wide = reinterpret_cast<const std::byte*>(weights.data());
  const auto* half = reinterpret_cast<const std::byte*>(narrow.data());
  for (int copy = 0; copy < copies; ++copy) {
    for (const Shape& s : shapes) {
      using Type = model::WeightMatrix::Type;
      wide_matrices.emplace_back(wide, Type::kF32, s.rows, s.cols);
      matrices.push_back(in_bf16 ? model::WeightMatrix(half, Type::kBf16, s.rows, s.cols).in_bf16()
                                 : wide_matrices.back());
      wide += wide_matrices.back().bytes();
      half += wide_matrices.back().bytes() / 2;
    }
  }
  const model::Matrix x = model::Matrix::Constant(n, cols, 0.25f);
  std::vector<double> plain, ours;
  for (auto _ : state) {
    plain.push_back(seconds([&] {
      for (const model::WeightMatrix& w : wide_matrices) {
        model::Matrix y(n, w.rows());
        blas(x, w, y);
        benchmark::DoNotOptimize(y.data());
      }
    }));
    ours.push_back(seconds([&] {
      for (auto at = matrices.begin(); at != matrices.end(); at += std::ssize(shapes)) {
        std::vector<const model::WeightMatrix*> together;
        for (auto m = at; m != at + std::ssize(shapes); ++m) together.push_back(&*m);
        benchmark::DoNotOptimize(model::apply_all(together, x).data());
      }
    }));
    state.SetIterationTime(ours.back());
  }
  state.SetLabel(model::product_library());
  const double operations = 2e-9 * static_cast<double>(n * values);
  state.counters["gflops"] = operations / median(ours);
  state.counters["blas_gflops"] = operations / median(plain);
  state.counters["blas_share"] = median(plain) / median(ours);
}

}  // namespace

#define SIDE_BY_SIDE(shapes)                                   \
  BENCHMARK_CAPTURE(side_by_side, shapes##_f32, shapes, false) \
      ->Arg(8)                                                 \
      ->Arg(80)                                                \
      ->Iterations(15)                                         \
      ->UseManualTime();                                       \
  BENCHMARK_CAPTURE(side_by_side, shapes##_bf16, shapes, true) \
      ->Arg(8)                                                 \
      ->Arg(80)                                                \
      ->Iterations(15)                                         \
      ->UseManualTime()
SIDE_BY_SIDE(kQkv);
SIDE_BY_SIDE(kOut);
SIDE_BY_SIDE(kUpGate);
SIDE_BY_SIDE(kDown);
SIDE_BY_SIDE(kClassifier);
#undef SIDE_BY_SIDE

BENCHMARK_CAPTURE(products, f32, kv::model::WeightMatrix::Type::kF32)
    ->Arg(1)
    ->Arg(8)
    ->Iterations(15)
    ->UseManualTime();
BENCHMARK_CAPTURE(products, f16, kv::model::WeightMatrix::Type::kF16)
    ->Arg(1)
    ->Arg(8)
    ->Iterations(15)
    ->UseManualTime();
BENCHMARK_CAPTURE(products, bf16, kv::model::WeightMatrix::Type::kBf16)
    ->Arg(1)
    ->Arg(8)
    ->Arg(64)
    ->Iterations(15)
    ->UseManualTime();
BENCHMARK_MAIN();
