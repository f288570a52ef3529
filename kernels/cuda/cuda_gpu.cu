#include "kernels/cuda/cuda_gpu.h"

#include <cstdio>
#include <cstring>
#include <new>
#include <stdexcept>

#include "kernels/cuda/attention/attend_simple.h"
#include "kernels/cuda/attention/decode.h"
#include "kernels/cuda/attention/evict.h"
#include "kernels/cuda/attention/merge.h"
#include "kernels/cuda/attention/read_all.h"
#include "kernels/cuda/attention/read_back.h"
#include "kernels/cuda/encode/append.h"
#include "kernels/cuda/refuse.h"

namespace kv::cuda {
namespace {

constexpr int kAttendThreads = kAttendWarps * simt::kWarp;

int blocks(int items, int of) { return (items + of - 1) / of; }

constexpr size_t kStagingBytes = size_t{8} << 20;
constexpr int64_t kHeldCycles = 200000;  // some 0.1 ms

// Keeps the GPU busy, for so many of its cycles.
__global__ void hold(int64_t cycles) {
  const int64_t start = clock64();
  while (clock64() - start < cycles) {
  }
}

dim3 grid(int x, int y = 1, int z = 1) {
  check_grid(y, z);
  return {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
}

// What a destructor says, since it cannot throw.
void report(cudaError_t error, const char* call) noexcept {
  if (error != cudaSuccess) std::fprintf(stderr, "kvlab: %s: %s\n", call, cudaGetErrorString(error));
}

// Asked once: it takes the runtime longer than a step of attention.
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
  return info;
}

// Kernels are compiled for some GPUs, and for what is newer.
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

}  // namespace

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // or the next call would report it again
  if (error == cudaErrorMemoryAllocation) throw std::bad_alloc();
  throw std::runtime_error(std::string("GPU: ") + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) +
                           ") in " + call);
}

CudaGpu::CudaGpu(int device) {
  KV_CHECK(cudaSetDevice(device));
  info_ = info_of(device);
  KV_CHECK(cudaDeviceGetAttribute(&most_shared_bytes_, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  KV_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  KV_CHECK(cudaStreamCreateWithFlags(&ahead_, cudaStreamNonBlocking));
  for (cudaEvent_t& event : events_) KV_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  for (cudaEvent_t& event : clock_) KV_CHECK(cudaEventCreate(&event));
  staging_ = allocate_pinned(kStagingBytes);
  // Memory that is released stays in the pool, or each allocation would wait for the driver.
  cudaMemPool_t pool = nullptr;
  uint64_t kept = UINT64_MAX;
  KV_CHECK(cudaDeviceGetDefaultMemPool(&pool, device));
  KV_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
}

CudaGpu::~CudaGpu() {
  release_pinned(staging_);
  for (const cudaEvent_t event : clock_) report(cudaEventDestroy(event), "cudaEventDestroy");
  for (const cudaEvent_t event : events_) report(cudaEventDestroy(event), "cudaEventDestroy");
  report(cudaStreamDestroy(ahead_), "cudaStreamDestroy");
  report(cudaStreamDestroy(stream_), "cudaStreamDestroy");
}

std::byte* CudaGpu::allocate(size_t bytes) {
  void* p = nullptr;
  KV_CHECK(cudaMallocAsync(&p, bytes, stream_));
  KV_CHECK(cudaStreamSynchronize(stream_));  // either queue may use it at once
  return static_cast<std::byte*>(p);
}

void CudaGpu::release(std::byte* p) noexcept {
  for (const cudaStream_t stream : {stream_, ahead_})
    report(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  report(cudaFreeAsync(p, stream_), "cudaFreeAsync");
}

std::byte* CudaGpu::allocate_pinned(size_t bytes) {
  void* p = nullptr;
  KV_CHECK(cudaMallocHost(&p, bytes));
  return static_cast<std::byte*>(p);
}

void CudaGpu::release_pinned(std::byte* p) noexcept {
  for (const cudaStream_t stream : {stream_, ahead_})
    report(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  report(cudaFreeHost(p), "cudaFreeHost");
}

// From pageable host memory CUDA itself copies before it returns; to it, or from pinned memory, it does not.
void CudaGpu::copy(void* to, const void* from, size_t bytes) {
  KV_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
  KV_CHECK(cudaStreamSynchronize(stream_));
  staged_ = 0;
}

// Through pinned memory, or CUDA might wait for what is launched before.
void CudaGpu::upload(void* to, const void* from, size_t bytes) {
  if (bytes > kStagingBytes) return copy(to, from, bytes);
  if (staged_ + bytes > kStagingBytes) {
    KV_CHECK(cudaStreamSynchronize(stream_));
    staged_ = 0;
  }
  std::memcpy(staging_ + staged_, from, bytes);
  KV_CHECK(cudaMemcpyAsync(to, staging_ + staged_, bytes, cudaMemcpyHostToDevice, stream_));
  staged_ += bytes;
}

void CudaGpu::synchronize() {
  KV_CHECK(cudaStreamSynchronize(ahead_));
  KV_CHECK(cudaStreamSynchronize(stream_));
}

void CudaGpu::prefetch(void* to, const void* from, size_t bytes) {
  KV_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, ahead_));
}

Gpu::Mark CudaGpu::mark(Queue queue) {
  KV_CHECK(cudaEventRecord(event_of(marks_), stream_of(queue)));
  return marks_++;
}

void CudaGpu::wait(Queue queue, Mark mark) {
  KV_CHECK(cudaStreamWaitEvent(stream_of(queue), event_of(mark), 0));
}

void CudaGpu::wait(Mark mark) { KV_CHECK(cudaEventSynchronize(event_of(mark))); }

template <class Params>
void CudaGpu::launch(void (*kernel)(Params), dim3 grid, int threads, const Params& params,
                     size_t shared_bytes) {
  kernel<<<grid, static_cast<unsigned>(threads), shared_bytes, stream_>>>(params);
  KV_CHECK(cudaGetLastError());
}

void CudaGpu::start_clock() {
  launch(hold, grid(1), 1, kHeldCycles);
  KV_CHECK(cudaEventRecord(clock_[0], stream_));
}

void CudaGpu::stop_clock() { KV_CHECK(cudaEventRecord(clock_[1], stream_)); }

double CudaGpu::clock_us() {
  float ms = 0.0f;
  KV_CHECK(cudaEventSynchronize(clock_[1]));
  KV_CHECK(cudaEventElapsedTime(&ms, clock_[0], clock_[1]));
  return 1e3 * ms;
}

int CudaGpu::sm_mhz() {
  constexpr int64_t kCycles = 2000000;
  start_clock();
  launch(hold, grid(1), 1, kCycles);
  stop_clock();
  return static_cast<int>(kCycles / clock_us());
}

void CudaGpu::append(const AppendParams& params, int jobs, int most_units) {
  launch(append_rows, grid(append_blocks(params.layout, most_units), jobs), kAppendWarps * simt::kWarp,
         params);
}

void CudaGpu::copy_rows(const CopyParams& params, int jobs, int most_rows) {
  launch(cuda::copy_rows, grid(blocks(most_rows, kCopyWarps), jobs), kCopyWarps * simt::kWarp, params);
}

void CudaGpu::attend_simple(const AttendParams& params, int problems, int most_splits, int most_queries) {
  launch(cuda::attend_simple, grid(blocks(most_queries, kAttendWarps), problems, most_splits), kAttendThreads,
         params);
}

Instance CudaGpu::find(const Layout& layout, int queries) const {
  for (const auto find_in : {find_plain, find_fp8, find_block, find_token, find_symmetric, find_kivi}) {
    const Instance found = find_in(layout, queries);
    if (found.kernel && found.shared_bytes <= most_shared_bytes_) return found;
  }
  return {};
}

int CudaGpu::decode_queries(const Layout& layout, int queries) const { return find(layout, queries).queries; }

void CudaGpu::decode(const DecodeParams& params, int items) {
  const Instance found = find(params.layout, params.merge.most_queries);
  if (!found.kernel) throw std::logic_error("no decode kernel fits these rows");
  const auto* function = reinterpret_cast<const void*>(found.kernel);
  if (prepared_.insert(function).second) {
    KV_CHECK(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, found.shared_bytes));
    // All of an SM's memory, or it may hold fewer blocks than it has room for: rows do not pass through its
    // cache.
    KV_CHECK(cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared));
  }
  launch(found.kernel, grid(items, blocks(params.merge.most_queries, found.queries)),
         kDecodeWarps * simt::kWarp, params, static_cast<size_t>(found.shared_bytes));
}

void CudaGpu::merge(const MergeParams& params, int problems) {
  launch(merge_splits, grid(blocks(params.most_queries, kMergeQueries), problems), kMergeWarps * simt::kWarp,
         params);
}

void CudaGpu::add_attention_weights(const AttentionWeightsParams& params, int problems, int most_rows) {
  launch(cuda::add_attention_weights, grid(blocks(most_rows, kAttendThreads), problems), kAttendThreads,
         params);
}

void CudaGpu::choose_slots(const EvictParams& params, int heads) {
  launch(choose_slot, grid(heads), kEvictWarps * simt::kWarp, params, kEvictSharedBytes);
}

void CudaGpu::read_all(const ReadParams& params, int blocks) {
  launch(cuda::read_all, grid(blocks), kReadThreads, params);
}

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
  auto gpu = std::make_unique<CudaGpu>(0);
  refuse_without_kernels(gpu->info());
  return gpu;
}

}  // namespace kv::cuda
