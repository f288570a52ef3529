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
