// Runs the checks of wrappers.h on the GPU, and those of what a stream does.
#include "harness/gpu_check/wrappers.h"

#include <cstdio>
#include <stdexcept>

#include "harness/gpu_check/checks.h"
#include "kernels/cuda/cuda_gpu.h"

namespace kv::gpu_check {
namespace {

template <class Kernel, class... In>
__global__ void run(Kernel kernel, In... in) {
  kernel(blockIdx.x * blockDim.x + threadIdx.x, in...);
}

class GpuMachine {
 public:
  explicit GpuMachine(cuda::CudaGpu& gpu) : gpu_(gpu) {}
  cuda::CudaGpu& gpu() { return gpu_; }
  template <class Kernel, class... In>
  void launch(Grid grid, Kernel kernel, In... in) {
    run<<<grid.blocks, grid.threads, grid.shared_bytes, gpu_.stream()>>>(kernel, in...);
    KV_CHECK(cudaGetLastError());
  }

 private:
  cuda::CudaGpu& gpu_;
};

// A throw in a captured function ends the capture.
bool captures_end(cuda::CudaGpu& gpu) {
  bool thrown = false;
  try {
    gpu.time_us(cuda::Gpu::Timed::kGraph, [] { throw std::runtime_error("planned"); });
  } catch (const std::runtime_error&) {
    thrown = true;
  }
  return thrown && gpu.time_us(cuda::Gpu::Timed::kGraph, [] {}) >= 0.0;
}

__global__ void add_words(const uint32_t* from, int n, unsigned long long* to) {
  unsigned long long sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) sum += from[i];
  atomicAdd(to, sum);
}

// Pieces pass from pinned memory through two slots; a slot is overwritten once its kernel has read it.
bool queues_wait(cuda::CudaGpu& gpu) {
  constexpr int kPieces = 12, kSlots = 2, kWords = 1 << 20;
  constexpr size_t kBytes = kWords * sizeof(uint32_t);
  using Queue = cuda::Gpu::Queue;
  std::byte* const pinned = gpu.allocate(kPieces * kBytes, cuda::Gpu::Place::kPinned);
  for (int i = 0; i < kPieces * kWords; ++i)
    reinterpret_cast<uint32_t*>(pinned)[i] = static_cast<uint32_t>(i / kWords + 1);
  const DeviceBytes slots(gpu, kSlots * kBytes), sums = upload(gpu, std::vector<unsigned long long>(kPieces));
  cuda::Gpu::Mark done[kSlots] = {};
  for (int i = 0; i < kPieces; ++i) {
    uint32_t* slot = slots.as<uint32_t>() + i % kSlots * kWords;
    if (i >= kSlots) gpu.wait(Queue::kPrefetch, done[i % kSlots]);
    gpu.prefetch(slot, pinned + static_cast<size_t>(i) * kBytes, kBytes);
    gpu.wait(Queue::kMain, gpu.mark(Queue::kPrefetch));
    add_words<<<1, 256, 0, gpu.stream()>>>(slot, kWords, sums.as<unsigned long long>() + i);
    KV_CHECK(cudaGetLastError());
    done[i % kSlots] = gpu.mark(Queue::kMain);
  }
  std::vector<unsigned long long> got(kPieces);
  gpu.copy(got.data(), sums.as<unsigned long long>(), got.size() * sizeof(got[0]));
  gpu.release(pinned, cuda::Gpu::Place::kPinned);
  bool ok = true;
  for (size_t i = 0; i < got.size(); ++i) ok &= got[i] == (i + 1) * size_t{kWords};
  return ok;
}

bool report(const char* name, bool ok) {
  std::printf("{\"stage\": \"wrappers\", \"name\": \"%s\", \"status\": \"%s\"}\n", name,
              ok ? "ok" : "failed");
  std::fflush(stdout);
  return ok;
}

}  // namespace

bool check_wrappers(cuda::CudaGpu& gpu) {
  GpuMachine machine(gpu);
  bool all = true;
  Wrappers<GpuMachine> wrappers(machine);
  for (const auto& check : wrappers.checks()) all &= report(check.name, wrappers.passes(check));
  all &= report("queues", queues_wait(gpu));
  return report("captures", captures_end(gpu)) && all;
}

}  // namespace kv::gpu_check
