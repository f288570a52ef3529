// What a cache does with its rows where they lie in a GPU's memory: encoding, attention, and copies for those
// who check. The cache's own bookkeeping (retention, block tables) stays on the host, but for scores from
// attention and what is chosen by them; queries, new rows and outputs travel with each call. Rows that are
// not in the GPU's memory pass through it piece by piece, the next ones on their way while kernels read
// others.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/gpu.h"
#include "variants/codec/codec.h"
#include "variants/gpu_attention.h"
#include "variants/placement/placement.h"
#include "variants/retention/retention.h"

namespace kv {

// One unit to encode: k and v [unit.rows, head_dim], f32 of the host or, where they waited in a tail, f16 of
// the GPU.
struct EncodeTask {
  UnitAddress to;
  const std::byte *k, *v;
};

// Where a head's slots lie: in runs of `units` at equal distances, the first unit of each.
struct SlotRuns {
  int64_t units;
  std::array<int64_t, kPlanes> distance;  // bytes
  std::vector<UnitAddress> first;
};

// A head's new token, for which its policy on the GPU gives up a slot. k and v [head_dim], f32 of the host.
struct EvictingTask {
  GpuState state;
  SlotRuns slots;  // all of them; in equal runs for all tasks of a call
  const std::byte *k, *v;
};

class GpuEngine {
 public:
  // The memory has a GPU. It holds what the engine needs while it works, as workspace.
  GpuEngine(Memory& memory, const Codec& codec, int head_dim);

  // Empty if rows of this kind can be kept on a GPU, else the reason.
  static std::string unsupported_reason(int head_dim);

  void encode(const UnitLayout& unit, std::span<const EncodeTask> tasks);
  void encode_from_tail(const UnitLayout& unit, std::span<const EncodeTask> tasks);

  // Chooses each head's slot and encodes its new token there, all on the GPU. `token`: its number, of all
  // heads alike.
  void evict_and_encode(const UnitLayout& unit, int64_t token, std::span<const EvictingTask> tasks);

  void attend(std::span<const HeadQueries> problems, const FarRows* far, const TurnedKeys* turned) {
    attention_.attend(problems, far, turned);
  }
  // What ran last, as in "cuda90_decode" or "cuda90_simple".
  std::string kernel() const;

  // The host's own copies of these spans' rows, until the next call.
  std::vector<Span> look(std::span<const Span> spans);

 private:
  void launch_append(const UnitLayout& unit, std::span<const EncodeTask> tasks, bool half);
  std::byte* fit(size_t bytes) { return fit_on_gpu(memory_, input_, bytes); }

  Memory& memory_;
  cuda::Gpu& gpu_;
  const int head_dim_;
  GpuAttention attention_;
  Block input_;
  std::vector<std::byte> looked_;  // the host's
};

}  // namespace kv
