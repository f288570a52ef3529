// kernels/cuda/gpu.h over CUDA's runtime. For files that nvcc compiles; others know Gpu alone.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <set>

#include "kernels/cuda/attention/instance.h"
#include "kernels/cuda/gpu.h"

namespace kv::cuda {

// Throws std::runtime_error that names the call, or std::bad_alloc where memory is short.
void check(cudaError_t error, const char* call);
#define KV_CHECK(call) ::kv::cuda::check(call, #call)

class CudaGpu : public Gpu {
 public:
  explicit CudaGpu(int device);
  ~CudaGpu() override;
  CudaGpu(const CudaGpu&) = delete;
  CudaGpu& operator=(const CudaGpu&) = delete;

  // All launches go here, in order.
  cudaStream_t stream() const { return stream_; }

  GpuInfo info() const override { return info_; }
  std::byte* allocate(size_t bytes) override;
  void release(std::byte* p) noexcept override;
  std::byte* allocate_pinned(size_t bytes) override;
  void release_pinned(std::byte* p) noexcept override;
  void copy(void* to, const void* from, size_t bytes) override;
  void upload(void* to, const void* from, size_t bytes) override;
  void synchronize() override;
  void prefetch(void* to, const void* from, size_t bytes) override;
  Mark mark(Queue queue) override;
  void wait(Queue queue, Mark mark) override;
  void wait(Mark mark) override;
  void start_clock() override;
  void stop_clock() override;
  double clock_us() override;
  int sm_mhz() override;
  void append(const AppendParams& params, int jobs, int most_units) override;
  void copy_rows(const CopyParams& params, int jobs, int most_rows) override;
  void attend_simple(const AttendParams& params, int problems, int most_splits, int most_queries) override;
  int decode_queries(const Layout& layout, int queries) const override;
  void decode(const DecodeParams& params, int items) override;
  void merge(const MergeParams& params, int problems) override;
  void add_attention_weights(const AttentionWeightsParams& params, int problems, int most_rows) override;
  void choose_slots(const EvictParams& params, int heads) override;
  void read_all(const ReadParams& params, int blocks) override;

 private:
  // The instance for these rows and queries; without a kernel where there is none, or where this GPU's blocks
  // have too little shared memory for it.
  Instance find(const Layout& layout, int queries) const;

  template <class Params>
  void launch(void (*kernel)(Params), dim3 grid, int threads, const Params& params, size_t shared_bytes = 0);
  cudaStream_t stream_of(Queue queue) const { return queue == Queue::kMain ? stream_ : ahead_; }
  cudaEvent_t event_of(Mark mark) const { return events_[static_cast<size_t>(mark % kMarks)]; }

  GpuInfo info_;
  int most_shared_bytes_ = 0;
  cudaStream_t stream_ = nullptr, ahead_ = nullptr;
  std::array<cudaEvent_t, kMarks> events_{};  // of the newest marks
  Mark marks_ = 0;
  std::array<cudaEvent_t, 2> clock_{};  // at its start and its end
  std::byte* staging_ = nullptr;        // pinned: what is uploaded waits there
  size_t staged_ = 0;                   // bytes of it that may still be on their way
  std::set<const void*> prepared_;      // kernels that may use more shared memory than the standard 48 KiB
};

}  // namespace kv::cuda
