// What stands in for cuda_gpu.cu where no CUDA compiler was found.
#include <stdexcept>

#include "kernels/cuda/gpu.h"

namespace kv::cuda {

std::unique_ptr<Gpu> open_gpu() {
  throw std::invalid_argument(
      "no GPU can be used: kvlab was built without a CUDA compiler; leave --device at cpu, or install the "
      "CUDA "
      "toolkit and build again");
}

}  // namespace kv::cuda
