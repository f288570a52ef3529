// Reads memory and nothing else: the bandwidth to compare attention's with.
//
// A thread has kReadsAtOnce loads of 16 bytes in flight, all issued before the first result is used; cuda_report_test counts
// them in the disassembly.
#pragma once

#include "kernels/cuda/rows/params.h"
#include "kernels/cuda/simt/simt.h"

namespace kv::cuda {

inline constexpr int kReadThreads = 256, kReadsAtOnce = 8;

// The sum keeps compilers from removing the reads.
KV_KERNEL KV_LAUNCH_BOUNDS(kReadThreads, 4) read_all(ReadParams params) {
  const int64_t stride = int64_t{simt::blocks_x()} * simt::threads();
  int64_t i = int64_t{simt::block_x()} * simt::threads() + simt::thread();
  uint32_t sum = 0;
  KV_ROLLED
  for (; i + (kReadsAtOnce - 1) * stride < params.words; i += kReadsAtOnce * stride) {
    uint4 word[kReadsAtOnce];
    KV_UNROLL
    for (int j = 0; j < kReadsAtOnce; ++j) word[j] = simt::read_once(params.from + 16 * (i + j * stride));
    KV_UNROLL
    for (int j = 0; j < kReadsAtOnce; ++j) sum += word[j].x ^ word[j].y ^ word[j].z ^ word[j].w;
  }
  for (; i < params.words; i += stride) {
    const uint4 word = simt::read_once(params.from + 16 * i);
    sum += word.x ^ word.y ^ word.z ^ word.w;
  }
  if (sum == 0x12345678u) *params.sum = sum;
}

}  // namespace kv::cuda
