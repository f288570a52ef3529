// A GPU as the host sees it: memory, copies and the launches of every kernel, in the order of the calls; and a second queue, of
// copies alone, which prefetches for later launches.
//
// It is an interface, so that its users run on a real GPU and, in tests, on the shim.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "kernels/cuda/attention/instance.h"

namespace kv::cuda {

struct GpuInfo {
  std::string name;  // "NVIDIA H100 80GB HBM3"
  int major = 0, minor = 0;
  int multiprocessors = 0;
  size_t memory_bytes = 0, l2_bytes = 0;
  size_t free_bytes = 0;        // when the GPU was opened; others may hold some
  int driver = 0, runtime = 0;  // CUDA's numbers: 12040 is 12.4
  double bytes_per_us = 1e6;    // memory's data rate by the data sheet
};

// What a work item of attention costs beside its bytes: these decide how work is cut, and no result. Measured on an H200
// (results/h200).
struct ItemCosts {
  double begin_us = 5.0;   // from the launch to its first rows, and from its last rows to its partial result
  double split_us = 0.25;  // reading a partial result, in the merge
  double rows_per_us = 120;  // of 128 elements, by a block that has the memory for itself
};

// An error after which the GPU takes no more work of this process, so that a run ends with its cause.
struct GpuLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Gpu {
 public:
  // Each runs its work in order; neither waits for the other unless told to.
  enum class Queue { kMain, kPrefetch };
  enum class Place { kDevice, kPinned };
  // A point in a queue's work.
  using Mark = int64_t;

  virtual ~Gpu() = default;
  virtual GpuInfo info() const = 0;
  virtual ItemCosts item_costs() const { return {}; }

  // Device memory, aligned to 256, or pinned host memory, which the GPU can read; throws std::bad_alloc. release() waits for the
  // work that still uses it.
  virtual std::byte* allocate(size_t bytes, Place place) = 0;
  virtual void release(std::byte* p, Place place) noexcept = 0;
  // Copies between memories of any kind. The host's bytes may be reused when it returns.
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  // Copies from the host to the GPU in the main queue, without waiting for earlier launches.
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  // Waits for both queues.
  virtual void synchronize() = 0;

  // Copies in the queue kPrefetch and returns at once; neither side may change until the copy is waited for. The host's memory
  // is pinned.
  virtual void prefetch(void* to, const void* from, size_t bytes) = 0;
  // At most kMarks are in use at once; beyond that, an older mark stands for a newer one.
  static constexpr int kMarks = 64;
  virtual Mark mark(Queue queue) = 0;
  // Waits for the work before the mark: `queue` before its next work, or the caller.
  virtual void wait(Queue queue, Mark mark) = 0;
  virtual void wait(Mark mark) = 0;

  // Runs `work`, waits, and returns the GPU's own time for it in the main queue. kGraph: the launches become one graph, so that
  // the host's time does not count, less the time of an empty graph; it cannot hold copies or waits for the other queue.
  enum class Timed { kGraph, kStream };
  virtual double time_us(Timed as, const std::function<void()>& work) = 0;
  // The multiprocessors' clock now; waits.
  virtual int sm_mhz() = 0;

  // Launches; the kernels' headers describe them. Pointers in the parameters are the device's.
  virtual void append(const AppendParams& params, int jobs, int most_units) = 0;
  virtual void copy_rows(const CopyParams& params, int jobs, int most_rows) = 0;
  virtual void attend_simple(const AttendParams& params, int problems, int most_splits, int most_queries) = 0;
  // The fast kernel's instance for these rows and `queries` (group * tokens), without a kernel if there is none; decode() needs
  // one.
  virtual Instance decode_instance(const Layout& layout, int queries) const = 0;
  virtual void decode(const DecodeParams& params, int items) = 0;
  virtual void merge(const MergeParams& params, int problems) = 0;
  virtual void add_attention_weights(const AttentionWeightsParams& params, int problems, int most_rows) = 0;
  virtual void choose_slots(const EvictParams& params, int heads) = 0;
  virtual void read_all(const ReadParams& params, int blocks) = 0;
};

// The first GPU. Throws std::invalid_argument with one line if there is no driver, no GPU, or this build has no kernels for it.
std::unique_ptr<Gpu> open_gpu();

}  // namespace kv::cuda
