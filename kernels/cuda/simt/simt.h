// The machine that kernels run on: threads, barriers, shuffles, shared memory, asynchronous copies, matrix products. Kernels use
// these names and no others, so one source runs on both:
//   device.h      the GPU, one or two instructions each
//   simt/host.h   the shim, with a fiber a thread (in tests/ alone)
#pragma once

#ifdef __CUDACC__
#include "kernels/cuda/simt/device.h"
#else
#include <simt/host.h>
#endif

namespace kv::simt {

// Reductions over `lanes` neighbouring lanes, a power of two; each lane gets the result.
template <class T>
KV_DEVICE T largest_of_lanes(T x, int lanes) {
  KV_UNROLL
  for (int mask = 1; mask < lanes; mask *= 2) x = larger(x, shuffle_xor(x, mask));
  return x;
}
KV_DEVICE float sum_of_lanes(float x, int lanes) {
  KV_UNROLL
  for (int mask = lanes / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}

}  // namespace kv::simt
