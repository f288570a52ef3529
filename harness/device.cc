#include "harness/device.h"

#include <memory>
#include <stdexcept>

#include "kernels/cuda/gpu.h"

namespace kv {
namespace {

std::unique_ptr<cuda::Gpu>& gpu() {
  static std::unique_ptr<cuda::Gpu> gpu;
  return gpu;
}

}  // namespace

void use_device(std::string_view name) {
  if (name != "cpu" && name != "cuda") {
    throw std::invalid_argument("no device '" + std::string(name) + "'; there are: cpu, cuda");
  }
  if (name == "cpu") {
    gpu().reset();
  } else if (!gpu()) {
    gpu() = cuda::open_gpu();
  }
}

std::string device_name() { return gpu() ? gpu()->info().name : "cpu"; }

cuda::Gpu* device_gpu() { return gpu().get(); }

}  // namespace kv
