// A GPU as the host sees it: memory, copies and the launches of every kernel, in the order of the calls; and
// beside them a second queue, of copies alone, for what is to be there when a later launch wants it.
//
// An interface, so that what is built on it runs on a real GPU and, in the tests, on the shim.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernels/cuda/attention/instance.h"

namespace kv::cuda {

struct GpuInfo {
  std::string name;  // "NVIDIA H100 80GB HBM3"
  int major = 0, minor = 0;
  int multiprocessors = 0;
  size_t memory_bytes = 0, l2_bytes = 0;
  size_t free_bytes = 0;        // of the memory, when the GPU was opened: others may hold some
  int driver = 0, runtime = 0;  // as CUDA numbers them: 12040 is 12.4
};

class Gpu {
 public:
  // Each runs what it is given in order, and neither waits for the other unless it is told to.
  enum class Queue { kMain, kPrefetch };
  enum class Place { kDevice, kPinned };
  // What a queue had been given when this was made.
  using Mark = int64_t;

  virtual ~Gpu() = default;
  virtual GpuInfo info() const = 0;

  // Of the device, aligned to 256, or of the host, which the GPU then reads by itself; throws std::bad_alloc.
  // release() waits for what still uses it.
  virtual std::byte* allocate(size_t bytes, Place place) = 0;
  virtual void release(std::byte* p, Place place) noexcept = 0;
  // From and to memory of either kind. The host's bytes may be reused when it returns.
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  // The same from the host's memory to the GPU's, in the main queue: what is launched before may still run.
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  // Until all is done, in both queues.
  virtual void synchronize() = 0;

  // Copies in the queue kPrefetch and returns at once: both sides stay as they are until that is waited for. The
  // host's memory is pinned.
  virtual void prefetch(void* to, const void* from, size_t bytes) = 0;
  // At most kMarks are in use at once: an older one then stands for a newer.
  static constexpr int kMarks = 64;
  virtual Mark mark(Queue queue) = 0;
  // Until what lies before the mark is done: `queue` with what it is given from now on, or the caller.
  virtual void wait(Queue queue, Mark mark) = 0;
  virtual void wait(Mark mark) = 0;

  // The GPU's own time for what `work` gives the main queue, waited for. Of launches alone it makes a graph, which the host
  // hands over as a whole, so that its own time does not count; copies and waits for the other queue cannot be in one.
  enum class Timed { kGraph, kStream };
  virtual double time_us(Timed as, const std::function<void()>& work) = 0;
  // How fast the multiprocessors run now; waits.
  virtual int sm_mhz() = 0;

  // Launches; the kernels' headers say what they do. Pointers in the parameters are the device's.
  virtual void append(const AppendParams& params, int jobs, int most_units) = 0;
  virtual void copy_rows(const CopyParams& params, int jobs, int most_rows) = 0;
  virtual void attend_simple(const AttendParams& params, int problems, int most_splits, int most_queries) = 0;
  // The fast kernel's instance for these rows and `queries` (group * tokens); without a kernel if it has none. decode()
  // may be called only if it has.
  virtual Instance decode_instance(const Layout& layout, int queries) const = 0;
  virtual void decode(const DecodeParams& params, int items) = 0;
  virtual void merge(const MergeParams& params, int problems) = 0;
  virtual void add_attention_weights(const AttentionWeightsParams& params, int problems, int most_rows) = 0;
  virtual void choose_slots(const EvictParams& params, int heads) = 0;
  virtual void read_all(const ReadParams& params, int blocks) = 0;
};

// The first GPU. Throws std::invalid_argument with one line if there is no driver, no GPU, or this build has
// no kernels for it.
std::unique_ptr<Gpu> open_gpu();

}  // namespace kv::cuda
