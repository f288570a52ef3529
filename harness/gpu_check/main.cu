// The program behind `kvlab gpu-check`: harness/gpu_check/run.py builds it with nvcc alone and calls its stages.
#include <cstdio>
#include <stdexcept>
#include <string>

#include "harness/gpu_check/checks.h"
#include "kernels/cuda/cuda_gpu.h"

#ifndef KVLAB_COMMIT
#define KVLAB_COMMIT "unknown"
#endif

namespace {

using namespace kv;

void print_info(const cuda::GpuInfo& info) {
  std::printf(
      "{\"name\": \"%s\", \"compute_capability\": \"%d.%d\", \"multiprocessors\": %d, \"memory_bytes\": %zu, "
      "\"free_bytes\": %zu, \"l2_bytes\": %zu, \"driver\": %d, \"runtime\": %d, \"commit\": \"%s\"}\n",
      info.name.c_str(), info.major, info.minor, info.multiprocessors, info.memory_bytes, info.free_bytes,
      info.l2_bytes, info.driver, info.runtime, KVLAB_COMMIT);
}

int run(const std::string& stage, const std::string& argument) {
  const std::unique_ptr<cuda::Gpu> opened = cuda::open_gpu();
  auto& gpu = dynamic_cast<cuda::CudaGpu&>(*opened);
  if (stage == "info") return print_info(gpu.info()), 0;
  if (stage == "wrappers") return gpu_check::check_wrappers(gpu) ? 0 : 1;
  if (stage == "kernels") return gpu_check::check_kernels(gpu, argument == "small") ? 0 : 1;
  if (stage == "split") return gpu_check::compare_splits(gpu) ? 0 : 1;
  throw std::invalid_argument("no stage '" + stage + "'; there are info, wrappers, kernels and split");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu-check: %s\n", error.what());
    return dynamic_cast<const std::invalid_argument*>(&error) ? 2 : 1;
  }
}
