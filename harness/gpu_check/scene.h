// A batch of sequences in GPU memory, filled by the append kernel, and one step of attention over it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/gpu.h"
#include "kernels/span.h"
#include "variants/storage/attention_plan.h"

namespace kv::gpu_check {

struct CodecChoice {
  std::string name;
  Encoding k, v;
  int32_t unit_rows() const { return std::max<int32_t>(k.group, v.group); }
};

// Every codec with fast kernels, KIVI's with groups of 32.
const std::vector<CodecChoice>& codecs();
const CodecChoice& codec_named(const std::string& name);

struct SceneShape {
  CodecChoice codec;
  int head_dim = 128, kv_heads = 8, group = 4;
  std::vector<int32_t> rows;  // [sequences]
  int32_t tail_rows = 0;      // the last rows of each, raw, for codecs with groups
  int32_t page_rows = 0;      // rows a page, pages shuffled; 0: contiguous
  bool split = true;          // false: all rows of a (sequence, KV head) are one work item
  int32_t tokens = 1;         // the last of `rows`, which attend at once
  int32_t queries() const { return group * tokens; }  // a KV head
};

// Owns device memory.
class DeviceBytes {
 public:
  DeviceBytes() = default;
  DeviceBytes(cuda::Gpu& gpu, size_t bytes)
      : gpu_(&gpu), data_(bytes ? gpu.allocate(bytes, kPlace) : nullptr) {}
  DeviceBytes(DeviceBytes&& other) noexcept : gpu_(other.gpu_), data_(std::exchange(other.data_, nullptr)) {}
  DeviceBytes& operator=(DeviceBytes&& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~DeviceBytes() {
    if (data_) gpu_->release(data_, kPlace);
  }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  static constexpr auto kPlace = cuda::Gpu::Place::kDevice;
  cuda::Gpu* gpu_ = nullptr;
  std::byte* data_ = nullptr;
};

template <class T>
DeviceBytes upload(cuda::Gpu& gpu, const std::vector<T>& values) {
  DeviceBytes bytes(gpu, values.size() * sizeof(T));
  if (!values.empty()) gpu.copy(bytes.as<T>(), values.data(), values.size() * sizeof(T));
  return bytes;
}

// Writes numbers [first, first + n) of `seed` (numbers.h) to device memory.
using WriteNumbers = std::function<void(float* to, int64_t n, uint64_t seed, int64_t first)>;

class Scene {
 public:
  // Rows and queries are numbers of `seed`.
  Scene(cuda::Gpu& gpu, const WriteNumbers& write, const SceneShape& shape, uint64_t seed);

  // decode.h with its last blocks merging, decode.h with a launch that merges, attend_simple.h.
  enum class Path { kOneLaunch, kTwoLaunches, kPlain };
  // One step; q and out: [sequences, kv_heads, group, tokens, head_dim].
  void step(Path path);

  // True if this GPU has a kernel for the steps that are not plain.
  bool is_fast() const { return fast_.plan.block_queries > 0; }
  int problems() const { return fast_.plan.count(); }

  // ||out - FP64|| / ||FP64|| of one (sequence, KV head), from the stored bytes.
  double relative_error(int problem) const;
  // True if a (sequence, KV head)'s bytes equal those that the CPU stores for the same rows.
  bool bytes_are_the_cpus(int problem) const;
  // True if copy_rows' f32 rows equal, bit for bit, the stored bytes decoded by the CPU.
  bool copy_is_the_cpus(int problem) const;

 private:
  // The planes of one layout, cut into pages; each problem has some of them.
  struct Pool {
    cuda::Layout layout;
    std::vector<int32_t> rows;      // [problems]
    std::vector<cuda::Page> pages;  // [problems, pages_each]
    int32_t pages_each = 0;
    DeviceBytes plane[4], device_pages;
  };

  Pool make_pool(const CodecChoice& codec, const std::vector<int32_t>& rows, int32_t page_rows) const;
  // Appends the rows of every problem; each pool has a `stream` of numbers of its own.
  void fill(const Pool& pool, int stream, const WriteNumbers& write) const;
  // A plan with its arrays on the GPU.
  struct Planned {
    AttentionPlan plan;
    AttentionPlan::Placed at;
    DeviceBytes problems, items[2], max, sum, values, counters;
  };
  Planned planned(AttentionPlan::Cut how) const;
  const cuda::Problem& problem(int i) const { return fast_.plan.problems[static_cast<size_t>(i)]; }
  int64_t first_number(const Pool& pool, int stream, int problem, bool v) const;
  std::vector<float> decoded(const Pool& pool, int problem, bool v) const;
  std::vector<float> all_decoded(int problem, bool v) const;
  enum Plane { kKData, kKMeta, kVData, kVMeta };
  // A problem's units of a plane, contiguous.
  std::vector<std::byte> units_of(const Pool& pool, int problem, Plane plane) const;

  cuda::Gpu& gpu_;
  const SceneShape shape_;
  const uint64_t seed_;
  Pool main_, tail_;
  DeviceBytes q_, out_;
  Planned fast_, plain_;
};

}  // namespace kv::gpu_check
