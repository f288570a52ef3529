// The speed of encode_units() against a plain copy: rows of f32 become stored units, interleaved with a copy
// that reads the same bytes and writes as many as are stored, to the same places, on the same threads.
// `ctest` does not run this; build and run `append_benchmark`, for example with
// --benchmark_filter='token4/prompt'.
//
//   token   one new token of 32 layers x 8 heads: the rows are hot, as the projection leaves them, and their
//           places cold
//   prompt  2048 tokens of 8 heads, of which rows and places are cold
//   hot     32 tokens of 8 heads, to the same places again and again: what of it all is not waiting for
//   memory
//
//   GB/s              bytes read as f32 and bytes written, over the time
//   copy              the same of the copy: its ceiling
//   share             the copy's time over the encoder's (medians of the turns)
//   items_per_second  rows
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/benchmarks/benchmark.h"
#include "kernels/cpu/ceilings/copy.h"
#include "kernels/encode.h"
#include "kernels/format/descriptor.h"
#include "kernels/format/encoding.h"

namespace {

using namespace kv;
using namespace kv::bench;

struct StepShape {
  const char* name;
  int heads;         // summed over layers
  int64_t tokens;    // in one step
  int64_t capacity;  // rows of a head's place
  bool hot_rows, hot_places;
};
const StepShape kShapes[] = {{"token", 32 * 8, 1, 2048, true, false},
                             {"prompt", 8, 2048, 2048, false, false},
                             {"hot", 8, 32, 32, true, true}};

// Steps that go round a memory of several last-level caches, each to the next place and, where rows are to be
// cold, from the next rows.
class Ring {
 public:
  Ring(const Encoding& encoding, int head_dim, const StepShape& shape)
      : encoding_(encoding),
        head_dim_(head_dim),
        shape_(shape),
        units_(shape.capacity / encoding.group),
        step_units_((shape.tokens + encoding.group - 1) / encoding.group),
        data_bytes_(unit_data_bytes(encoding, head_dim)),
        meta_bytes_(unit_meta_bytes(encoding, head_dim)),
        row_floats_(shape.heads * step_units_ * encoding.group * head_dim),
        row_copies_(shape.hot_rows ? 1 : ceil_div(kColdBytes, row_floats_ * 4)),
        place_copies_(shape.hot_places ? 1 : ceil_div(kColdBytes, place_bytes())),
        rows_(allocate(row_floats_ * row_copies_ * 4)),
        places_(allocate(place_bytes() * place_copies_)) {
    std::fill_n(places_.get(), place_bytes() * place_copies_,
                std::byte{1});  // so that no turn pays for pages
    std::mt19937 rng(7);
    std::normal_distribution<float> normal;
    std::vector<float> noise(1 << 16);
    for (float& x : noise) x = normal(rng);
    auto* to = reinterpret_cast<float*>(rows_.get());
    for (int64_t i = 0; i < row_floats_ * row_copies_; ++i)
      to[i] = noise[static_cast<size_t>(i * 17 % 65521)];
  }

  // One step: run(jobs) with each thread's share of the heads.
  template <class Run>
  void step(Run run) {
    const auto* rows = reinterpret_cast<const float*>(rows_.get()) + turn_ % row_copies_ * row_floats_;
    std::byte* place = places_.get() + turn_ % place_copies_ * place_bytes();
    const int64_t first = turn_ / place_copies_ * kStride % (units_ - step_units_ + 1);
    ++turn_;
    const int64_t unit_floats = int64_t{encoding_.group} * head_dim_;
    std::byte* metas = place + shape_.heads * units_ * data_bytes_;
#pragma omp parallel
    {
      thread_local std::vector<UnitJob> jobs;
      jobs.clear();
#pragma omp for schedule(static)
      for (int head = 0; head < shape_.heads; ++head) {
        const int64_t at = head * units_ + first;
        const float* from = rows + head * step_units_ * unit_floats;
        for (int64_t u = 0; u < step_units_; ++u)
          jobs.push_back(
              {from + u * unit_floats, place + (at + u) * data_bytes_, metas + (at + u) * meta_bytes_});
      }
      run(jobs);
    }
  }
  int64_t read_bytes() const { return row_floats_ * 4; }
  int64_t written_bytes() const { return shape_.heads * step_units_ * (data_bytes_ + meta_bytes_); }
  int64_t rows() const { return shape_.heads * step_units_ * encoding_.group; }
  cpu::UnitBytes unit_bytes() const {
    return {int64_t{encoding_.group} * head_dim_ * 4, data_bytes_, meta_bytes_};
  }

 private:
  static constexpr int64_t kColdBytes = int64_t{128} << 20;
  static constexpr int64_t kStride = 37;  // units between turns, so that none finds its lines fetched along
  static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
  int64_t place_bytes() const { return shape_.heads * units_ * (data_bytes_ + meta_bytes_); }

  Encoding encoding_;
  int head_dim_;
  StepShape shape_;
  int64_t units_, step_units_, data_bytes_, meta_bytes_, row_floats_, row_copies_, place_copies_, turn_ = 0;
  Buffer rows_, places_;
};

void append(benchmark::State& state, const Encoding& e, const StepShape& shape, int head_dim, int threads) {
  omp_set_num_threads(threads);
  Ring ring(e, head_dim, shape);
  std::vector<double> encodes, copies;
  for (auto _ : state) {
    encodes.push_back(
        seconds([&] { ring.step([&](std::span<const UnitJob> jobs) { encode_units(e, head_dim, jobs); }); }));
    copies.push_back(seconds([&] {
      ring.step([&](std::span<const UnitJob> jobs) {
        benchmark::DoNotOptimize(cpu::copy_units(ring.unit_bytes(), jobs));
      });
    }));
    state.SetIterationTime(encodes.back());
  }
  const double bytes = static_cast<double>(ring.read_bytes() + ring.written_bytes());
  const double encode_s = median(encodes), copy_s = median(copies);
  state.counters["GB/s"] = bytes / encode_s * 1e-9;
  state.counters["copy"] = bytes / copy_s * 1e-9;
  state.counters["share"] = copy_s / encode_s;
  state.counters["ns/row"] = encode_s * threads / static_cast<double>(ring.rows()) * 1e9;
  state.SetItemsProcessed(state.iterations() * ring.rows());
}

}  // namespace

int main(int argc, char** argv) {
  for (const StepShape& shape : kShapes) {
    for (const int head_dim : {64, 128, 256}) {
      for (const int threads : {1, 2}) {
        for (const Encoding& encoding : sample_encodings()) {
          if (encoding.group > shape.tokens)
            continue;  // a residual buffer gathers such units (variants/storage/residual_buffer.h)
          const std::string name = encoding_name(encoding) + "/" + shape.name + "/D" +
                                   std::to_string(head_dim) + "/t" + std::to_string(threads);
          benchmark::RegisterBenchmark(name.c_str(), [encoding, &shape, head_dim,
                                                      threads](benchmark::State& state) {
            append(state, encoding, shape, head_dim, threads);
          })->UseManualTime();
        }
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
