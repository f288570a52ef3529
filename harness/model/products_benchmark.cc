// Matrix products of a decode step beside a plain read of the same weights: read_share is what kernels/LOG.md reports. Weights
// are a gigabyte, so that no cache holds them. `ctest` does not run this; build and run `products_benchmark`.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
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

}  // namespace

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
