// The GPU's append on the shim: it must store the CPU's bytes for every format, placement and row.
#include "kernels/cuda/encode/append.h"

#include <gtest/gtest.h>

#include "harness/gpu_check/problem.h"
#include "tests/kernels/cuda/simt_gpu.h"
#include "tests/kernels/paged_head.h"

namespace kv {
namespace {

using namespace test;
using cuda::AppendJob;

void check_append(const CodecPair& codec, int head_dim, const Placing& placing, unsigned seed) {
  SCOPED_TRACE(codec.name() + " head_dim " + std::to_string(head_dim) + " pages of " +
               std::to_string(placing.page_units));
  const size_t unit = static_cast<size_t>(codec.unit_rows()) * static_cast<size_t>(head_dim);
  std::vector<float> k;
  for (const Named& rows : adversarial(unit)) k.insert(k.end(), rows.values.begin(), rows.values.end());
  std::vector<float> v = k;  // the same in another order
  std::rotate(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(unit), v.end());
  SimtGpu gpu(seed);
  ASSERT_EQ(gpu_check::append_difference(gpu, codec, head_dim, placing, k, v), "");
}

TEST(CudaAppend, EveryFormatStoresTheCpusBytes) {
  for (const Encoding& e : quantised()) {
    if (!descriptor_of(e.format).on_gpu) continue;
    for (const int head_dim : {32, 64, 128, 256}) {
      check_append(same(e), head_dim, kPaged, 1);
      if (HasFatalFailure()) return;
    }
  }
  for (const int head_dim : {8, 24, 96, 256}) {
    for (const Encoding& e : {kF32, kF16, kBf16, kFp8s[0], token(3, true), channel(2, 8)}) {
      check_append(same(e), head_dim, kOdd, 2);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CudaAppend, EveryPlacementStoresTheCpusBytes) {
  for (const Placing& placing : {kContiguous, kRowMajor, kPaged, kTiny, kOdd}) {
    for (const CodecPair& codec : {same(kF16), same(kQ4), kivi(4), kivi(2, 8)}) {
      check_append(codec, 64, placing, 3);
      if (HasFatalFailure()) return;
    }
  }
}

// A row that is not finite gets a NaN scale and harms no other row, as on the CPU.
TEST(CudaAppend, NonFiniteRowsAreMarkedAlike) {
  for (const Encoding& e : {kFp8s[0], kFp8s[1], kQ8, kQ4, token(4, true), token(4, false), channel(4, 8)}) {
    for (const float bad : {INFINITY, -INFINITY, NAN, -NAN}) {
      std::vector<float> rows = gaussian(static_cast<size_t>(e.group) * 64, 1);
      rows[5] = bad;
      SimtGpu gpu;
      ASSERT_EQ(gpu_check::append_difference(gpu, same(e), 64, kContiguous, rows, rows), "")
          << encoding_name(e);
    }
  }
}

// KIVI keeps rows as f16 until a whole unit of them is encoded.
TEST(CudaAppend, UnitsFromTheRawTailAreTheCpus) {
  const CodecPair codec = kivi(4);
  const int head_dim = 128, rows = codec.unit_rows();
  const auto k = gaussian(static_cast<size_t>(rows * head_dim), 1), v = gaussian(k.size(), 2);
  PagedHead tail(same(kF16), head_dim, kContiguous, rows), gpu(codec, head_dim, kTiny, rows),
      cpu(codec, head_dim, kContiguous, rows);
  tail.fill(k, v);
  const AppendJob job{tail.pages[0].k, tail.pages[0].v, gpu.pages.data(), nullptr, 0, 1};
  simt::Machine::run({.grid = {cuda::append_blocks(gpu.layout, 1)}, .threads = 128, .seed = 3}, [&] {
    cuda::append_rows({gpu.layout, &job, true});
  });
  cpu.fill(tail.decoded(false), tail.decoded(true));
  ASSERT_EQ(difference(gpu, cpu), "");
}

}  // namespace
}  // namespace kv
