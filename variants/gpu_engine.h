// What a cache does with its rows where they lie in a GPU's memory: encoding, attention, and copies for those
// who check. The cache's own bookkeeping (retention, block tables) stays on the host; queries, new rows and
// outputs travel with each call.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/gpu.h"
#include "variants/codec/codec.h"
#include "variants/placement/placement.h"

namespace kv {

// One unit to encode: k and v [unit.rows, head_dim], f32 of the host or, where they waited in a tail, f16 of
// the GPU.
struct EncodeTask {
  UnitAddress to;
  const std::byte *k, *v;
};

class GpuEngine {
 public:
  // The memory has a GPU. It holds what the engine needs while it works, as workspace.
  GpuEngine(Memory& memory, const Codec& codec, int head_dim);

  // Empty if rows of this kind can be kept on a GPU, else the reason.
  static std::string unsupported_reason(const Codec& codec, int head_dim);

  void encode(const UnitLayout& unit, std::span<const EncodeTask> tasks);
  void encode_from_tail(const UnitLayout& unit, std::span<const EncodeTask> tasks);

  // As kv::attend, for spans of the GPU's memory; q, out and mass are the host's. All problems have one
  // group.
  void attend(std::span<const HeadQueries> problems);
  // What ran last, as in "cuda90_decode" or "cuda90_simple".
  std::string kernel() const;

  // The host's own copies of these spans' rows, until the next call.
  std::vector<Span> look(std::span<const Span> spans);

 private:
  // Uploads bytes that the kernels of one call read.
  class Upload;
  struct Batch;

  void launch_append(const UnitLayout& unit, std::span<const EncodeTask> tasks, bool half);
  Batch pack(std::span<const HeadQueries> problems) const;
  void place(Batch& batch);
  void run(const Batch& batch);
  void add_mass(std::span<const HeadQueries> problems, const Batch& batch);
  std::byte* fit(Block& block, size_t bytes);

  Memory& memory_;
  cuda::Gpu& gpu_;
  const Codec codec_;
  const int head_dim_;
  bool fast_ = true;  // the last attend took the fast kernel
  Block input_, output_;
  std::vector<std::byte> looked_;  // the host's
};

}  // namespace kv
