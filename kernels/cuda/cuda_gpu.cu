#include "kernels/cuda/cuda_gpu.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>

#include "kernels/cuda/attention/attend_simple.h"
#include "kernels/cuda/attention/evict.h"
#include "kernels/cuda/attention/read_all.h"
#include "kernels/cuda/attention/read_back.h"
#include "kernels/cuda/encode/append.h"
#include "kernels/cuda/refuse.h"

namespace kv::cuda {

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // else the next call reports it again
  if (error == cudaErrorMemoryAllocation) throw std::bad_alloc();
  const std::string cause =
      std::string("GPU: ") + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ") in " + call;
  if (cudaGetLastError() != cudaSuccess) throw GpuLost(cause);  // an error that stays, a kernel's
  throw std::runtime_error(cause);
}

namespace {

// For destructors and other code that cannot throw. An error that stays has been reported by what met it first.
#define KV_REPORT(call) report(call, #call)
void report(cudaError_t error, const char* call) noexcept {
  static cudaError_t before = cudaSuccess;
  if (error != std::exchange(before, error) && error != cudaSuccess)
    std::fprintf(stderr, "kvlab: %s: %s\n", call, cudaGetErrorString(error));
}

// Keeps the GPU busy for a number of its cycles.
__global__ void hold(int64_t cycles) {
  const int64_t start = clock64();
  while (clock64() - start < cycles) {
  }
}

int blocks(int items, int of) { return (items + of - 1) / of; }

GpuInfo info_of(int device) {
  cudaDeviceProp properties;
  KV_CHECK(cudaGetDeviceProperties(&properties, device));
  GpuInfo info{.name = properties.name,
               .major = properties.major,
               .minor = properties.minor,
               .multiprocessors = properties.multiProcessorCount,
               .memory_bytes = properties.totalGlobalMem,
               .l2_bytes = static_cast<size_t>(properties.l2CacheSize)};
  size_t all = 0;
  KV_CHECK(cudaMemGetInfo(&info.free_bytes, &all));
  KV_CHECK(cudaDriverGetVersion(&info.driver));
  KV_CHECK(cudaRuntimeGetVersion(&info.runtime));
  int khz = 0, bits = 0;
  KV_CHECK(cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, device));
  KV_CHECK(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device));
  if (khz > 0 && bits > 0) info.bytes_per_us = 2.0 * khz * bits / 8.0 * 1e-3;  // twice a cycle
  return info;
}

// Refuses a GPU for which no kernels are compiled; newer ones can use those of older ones.
void refuse_without_kernels(const GpuInfo& info) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(merge_splits));
  cudaGetLastError();
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) {
    throw std::invalid_argument("this build has no kernels for the GPU here, " + info.name +
                                " of compute capability " + std::to_string(info.major) + "." +
                                std::to_string(info.minor) +
                                "; leave --device at cpu, or, from 8.0 on, configure with "
                                "CMAKE_CUDA_ARCHITECTURES=native and build again");
  }
  check(error, "cudaFuncGetAttributes");
}

class RuntimeGpu final : public CudaGpu {
 public:
  explicit RuntimeGpu(int device) {
    KV_CHECK(cudaSetDevice(device));
    info_ = info_of(device);
    KV_CHECK(cudaDeviceGetAttribute(&most_shared_bytes_, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    for (cudaStream_t& queue : queues_) KV_CHECK(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking));
    for (cudaEvent_t& event : events_) KV_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (cudaEvent_t& event : clock_) KV_CHECK(cudaEventCreate(&event));
    staging_ = RuntimeGpu::allocate(kStagingBytes, Place::kPinned);
    // Released memory stays in the pool, else each allocation would wait for the driver.
    cudaMemPool_t pool = nullptr;
    uint64_t kept = UINT64_MAX;
    KV_CHECK(cudaDeviceGetDefaultMemPool(&pool, device));
    KV_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
  }
  ~RuntimeGpu() override {
    RuntimeGpu::release(staging_, Place::kPinned);
    for (const cudaEvent_t event : clock_) KV_REPORT(cudaEventDestroy(event));
    for (const cudaEvent_t event : events_) KV_REPORT(cudaEventDestroy(event));
    for (const cudaStream_t queue : queues_) KV_REPORT(cudaStreamDestroy(queue));
  }
  RuntimeGpu(const RuntimeGpu&) = delete;
  RuntimeGpu& operator=(const RuntimeGpu&) = delete;

  // Asked once: the answer takes longer than a step of attention.
  GpuInfo info() const override { return info_; }
  cudaStream_t stream() const override { return of(Queue::kMain); }

  std::byte* allocate(size_t bytes, Place place) override {
    void* p = nullptr;
    if (place == Place::kPinned) {
      KV_CHECK(cudaMallocHost(&p, bytes));
    } else {
      KV_CHECK(cudaMallocAsync(&p, bytes, stream()));
      KV_CHECK(cudaStreamSynchronize(stream()));  // either queue may use it at once
    }
    return static_cast<std::byte*>(p);
  }
  void release(std::byte* p, Place place) noexcept override {
    for (const cudaStream_t queue : queues_) KV_REPORT(cudaStreamSynchronize(queue));
    KV_REPORT(place == Place::kPinned ? cudaFreeHost(p) : cudaFreeAsync(p, stream()));
  }

  // CUDA reads pageable host memory before it returns; it does not wait for writes to it, nor for reads of pinned memory.
  void copy(void* to, const void* from, size_t bytes) override {
    KV_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream()));
    KV_CHECK(cudaStreamSynchronize(stream()));
    staged_ = 0;
  }
  // Goes through pinned memory, else CUDA might wait for earlier launches.
  void upload(void* to, const void* from, size_t bytes) override {
    if (bytes > kStagingBytes) return copy(to, from, bytes);
    if (staged_ + bytes > kStagingBytes) {
      KV_CHECK(cudaStreamSynchronize(stream()));
      staged_ = 0;
    }
    std::memcpy(staging_ + staged_, from, bytes);
    KV_CHECK(cudaMemcpyAsync(to, staging_ + staged_, bytes, cudaMemcpyHostToDevice, stream()));
    staged_ += bytes;
  }
  void synchronize() override {
    for (const cudaStream_t queue : queues_) KV_CHECK(cudaStreamSynchronize(queue));
  }
  void prefetch(void* to, const void* from, size_t bytes) override {
    KV_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, of(Queue::kPrefetch)));
  }
  Mark mark(Queue queue) override {
    KV_CHECK(cudaEventRecord(event_of(marks_), of(queue)));
    return marks_++;
  }
  void wait(Queue queue, Mark mark) override { KV_CHECK(cudaStreamWaitEvent(of(queue), event_of(mark), 0)); }
  void wait(Mark mark) override { KV_CHECK(cudaEventSynchronize(event_of(mark))); }

  double time_us(Timed as, const std::function<void()>& work) override {
    if (as == Timed::kStream) return between_events_us(as, work);
    if (!empty_graph_us_) {
      constexpr int kTries = 9;
      std::array<double, kTries> tries{};
      for (double& us : tries) us = between_events_us(as, [] {});
      std::ranges::sort(tries);
      empty_graph_us_ = tries[kTries / 2];
    }
    return std::max(0.0, between_events_us(as, work) - *empty_graph_us_);
  }
  int sm_mhz() override {
    constexpr int64_t kCycles = 2000000;
    return static_cast<int>(kCycles / time_us(Timed::kGraph, [&] { launch(hold, 1, 1, kCycles); }));
  }

  void append(const AppendParams& params, int jobs, int most_units) override {
    launch(append_rows, dim3(append_blocks(params.layout, most_units), jobs), kAppendWarps, params);
  }
  void copy_rows(const CopyParams& params, int jobs, int most_rows) override {
    launch(cuda::copy_rows, dim3(blocks(most_rows, kCopyWarps), jobs), kCopyWarps, params);
  }
  void attend_simple(const AttendParams& params, int problems, int most_splits, int most_queries) override {
    launch(cuda::attend_simple, dim3(blocks(most_queries, kAttendWarps), problems, most_splits), kAttendWarps,
           params);
  }
  Instance decode_instance(const Layout& layout, int queries) const override {
    Instance found = find_instance(layout, queries, most_shared_bytes_);
    if (found.kernel) found.blocks_of_sm = prepared(found);
    return found;
  }
  void decode(const DecodeParams& params, int items) override {
    const Instance found = decode_instance(params.layout, params.merge.most_queries);
    if (!found.kernel) throw std::logic_error("no decode kernel fits these rows");
    launch(found.kernel, dim3(items, blocks(params.merge.most_queries, found.queries)), kDecodeWarps, params,
           static_cast<size_t>(found.shared_bytes));
  }
  void merge(const MergeParams& params, int problems) override {
    launch(merge_splits, dim3(blocks(params.most_queries, kMergeQueries), problems), kMergeWarps, params);
  }
  void add_attention_weights(const AttentionWeightsParams& params, int problems, int most_rows) override {
    launch(cuda::add_attention_weights, dim3(blocks(most_rows, kAttendWarps * simt::kWarp), problems),
           kAttendWarps, params);
  }
  void choose_slots(const EvictParams& params, int heads) override {
    launch(choose_slot, dim3(heads), kEvictWarps, params, kEvictSharedBytes);
  }
  void read_all(const ReadParams& params, int blocks) override {
    launch(cuda::read_all, dim3(blocks), kReadThreads / simt::kWarp, params);
  }

 private:
  // Ends the capture that it began, also if what is captured throws.
  struct Graph {
    cudaStream_t captured = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    void begin(cudaStream_t stream) {
      KV_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      captured = stream;
    }
    void end() { KV_CHECK(cudaStreamEndCapture(std::exchange(captured, nullptr), &graph)); }
    ~Graph() {
      if (captured && cudaStreamEndCapture(captured, &graph) != cudaSuccess) cudaGetLastError();
      if (ready) KV_REPORT(cudaGraphExecDestroy(ready));
      if (graph) KV_REPORT(cudaGraphDestroy(graph));
    }
  };

  double between_events_us(Timed as, const std::function<void()>& work) {
    // The events are the graph's first and last node, so the GPU passes them without the host.
    const unsigned how = as == Timed::kGraph ? cudaEventRecordExternal : cudaEventRecordDefault;
    Graph graph;
    if (as == Timed::kGraph) graph.begin(stream());
    KV_CHECK(cudaEventRecordWithFlags(clock_[0], stream(), how));
    work();
    KV_CHECK(cudaEventRecordWithFlags(clock_[1], stream(), how));
    if (as == Timed::kGraph) {
      graph.end();
      KV_CHECK(cudaGraphInstantiate(&graph.ready, graph.graph, 0));
      KV_CHECK(cudaGraphUpload(graph.ready, stream()));
      KV_CHECK(cudaGraphLaunch(graph.ready, stream()));
    }
    KV_CHECK(cudaStreamSynchronize(stream()));
    float ms = 0.0f;
    KV_CHECK(cudaEventElapsedTime(&ms, clock_[0], clock_[1]));
    return 1e3 * ms;
  }

  static constexpr size_t kStagingBytes = size_t{8} << 20;

  template <class Params>
  void launch(void (*kernel)(Params), dim3 grid, int warps, const Params& params, size_t shared_bytes = 0) {
    check_grid(grid.y, grid.z);
    kernel<<<grid, static_cast<unsigned>(warps * simt::kWarp), shared_bytes, stream()>>>(params);
    KV_CHECK(cudaGetLastError());
  }
  // Makes a kernel ready at its first use; returns the blocks that a multiprocessor holds.
  int prepared(const Instance& one) const {
    const auto* function = reinterpret_cast<const void*>(one.kernel);
    if (const auto known = blocks_of_sm_.find(function); known != blocks_of_sm_.end()) return known->second;
    KV_CHECK(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, one.shared_bytes));
    // Takes all of an SM's memory, else the SM may hold fewer blocks than fit; rows bypass its cache.
    KV_CHECK(cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared));
    int held = 0;
    KV_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&held, function, kDecodeWarps * simt::kWarp,
                                                           static_cast<size_t>(one.shared_bytes)));
    return blocks_of_sm_[function] = std::max(1, held);
  }
  cudaStream_t of(Queue queue) const { return queues_[static_cast<size_t>(queue)]; }
  cudaEvent_t event_of(Mark mark) const { return events_[static_cast<size_t>(mark % kMarks)]; }

  GpuInfo info_;
  int most_shared_bytes_ = 0;
  std::array<cudaStream_t, 2> queues_{};      // by Queue
  std::array<cudaEvent_t, kMarks> events_{};  // of the newest marks
  Mark marks_ = 0;
  std::array<cudaEvent_t, 2> clock_{};  // start and end
  std::optional<double> empty_graph_us_;
  std::byte* staging_ = nullptr;  // pinned; uploads wait here
  size_t staged_ = 0;             // bytes of it that may still be in transfer
  // Of kernels that may use more than the standard 48 KiB of shared memory.
  mutable std::map<const void*, int> blocks_of_sm_;
};

}  // namespace

std::unique_ptr<Gpu> open_gpu() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice ||
      (error == cudaSuccess && !count)) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    throw std::invalid_argument(
        why_no_gpu(driver, runtime, error ? cudaGetErrorString(error) : "none is visible"));
  }
  check(error, "cudaGetDeviceCount");
  auto gpu = std::make_unique<RuntimeGpu>(0);
  refuse_without_kernels(gpu->info());
  return gpu;
}

}  // namespace kv::cuda
