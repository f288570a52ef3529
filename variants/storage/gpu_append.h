// New rows into a GPU's memory: they are uploaded as f32 and encoded there, those of all sequences of a step's
// layer in one launch. Raw rows that fill a unit are encoded in a second; and so are units whose rows come
// later, where a sequence has several in a call. Nothing waits for the GPU.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/gpu.h"
#include "variants/core/slot_table.h"
#include "variants/storage/gpu_batch.h"
#include "variants/storage/storage.h"

namespace kv {

// One unit to encode: k and v [unit.rows, head_dim], f32 of the host or, where they waited in a residual
// buffer, f16 of the GPU.
struct EncodeTask {
  UnitAddress to;
  const std::byte *k, *v;
};

// A head's slots: runs of `units` at equal distances, by the first unit of each.
struct SlotRuns {
  int64_t units;
  std::array<int64_t, kPlanes> distance;  // bytes
  std::vector<UnitAddress> first;
};

// A head's new token, for which the GPU chooses the slot that is overwritten. k and v [head_dim], f32 of the
// host.
struct EvictingTask {
  DeviceScores scores;
  SlotRuns slots;  // all of them; in equal runs for all tasks of a call
  const std::byte *k, *v;
  int64_t token;  // its number, which all tasks of a call share
};

class GpuAppend {
 public:
  explicit GpuAppend(const StorageContext& context) : context_(context), gpu_(*context.memory.gpu()) {}

  // Storage::store().
  void store(std::span<const NewRows> rows);

 private:
  void store_slots(const NewRows& in);
  void store_through_residual(const NewRows& in);
  SlotRuns slot_runs(const NewRows& in, int head, int64_t slots) const;
  // Encodes and forgets the tasks: of f32 rows of the host, or of f16 rows of the GPU.
  void encode(std::vector<EncodeTask>& tasks, const UnitLayout& unit, bool half);
  void encode_raw_and_full();
  // Chooses each head's slot and encodes its new token there, all on the GPU; then forgets evicting_tasks_.
  void evict_and_encode();
  void upload(const std::function<void(Upload&)>& fill);

  const StorageContext context_;
  cuda::Gpu& gpu_;
  Block input_;
  std::vector<EncodeTask> tasks_;
  std::vector<EncodeTask> full_units_;  // whose rows lie in residual buffers, or are among tasks_
  std::vector<EvictingTask> evicting_tasks_;
};

}  // namespace kv
