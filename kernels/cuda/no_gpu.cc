// Replaces cuda_gpu.cu in builds without GPU kernels.
#include <stdexcept>

#include "kernels/cuda/gpu.h"

std::unique_ptr<kv::cuda::Gpu> kv::cuda::open_gpu() {
  throw std::invalid_argument(
      "no GPU can be used: this build has no GPU kernels; add --device cuda to the command, and ./kvlab "
      "builds them (it needs the CUDA toolkit)");
}
