// All that kernels ask of the machine that a GPU is: threads, barriers, shuffles, shared memory, asynchronous
// copies, matrix products. Kernels use these names and no others, so that one source runs on both:
//   device.h      the GPU, where each is an instruction or two
//   simt/host.h   the tests' stand-in, where a thread is a fiber (found in tests/ alone)
#pragma once

#ifdef __CUDACC__
#include "kernels/cuda/simt/device.h"
#else
#include <simt/host.h>
#endif

namespace kv::simt {

// Over `lanes` neighbouring lanes, a power of two; all of them get it.
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
