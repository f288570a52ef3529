// One step's attention on a GPU: its problems cut into work items, and the launches that work them off. Caches have
// such a plan (gpu_attention.h), and so has gpu-check.
//
// The fast kernel takes items, whose partial results their problem's last block merges; where it has no instance for
// the rows, the plain one takes splits of kPlainRows rows, and a launch merges them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/gpu.h"

namespace kv {

struct ItemRange {
  size_t first = 0, count = 0;
};

struct AttentionPlan {
  static constexpr int32_t kPlainRows = kSplitRows;

  cuda::Layout layout{}, tail{};  // the pages that attention reads, and the raw rows behind them
  int32_t head_dim = 0, group = 1;
  // Their rows, tail_rows, n and visible; cut() adds splits and first_partial, and their owner the addresses.
  std::vector<cuda::Problem> problems;

  // kEven: items that keep all of the GPU busy. kWhole: as few a problem as there can be. kPlain: none.
  enum class Cut { kEven, kWhole, kPlain };
  void cut(const cuda::Gpu& gpu, Cut how = Cut::kEven);

  // The results of cut().
  // Work items of the fast kernel: of one launch, and the tails' if they need another.
  std::vector<cuda::WorkItem> items[2];
  int32_t block_queries = 0;  // that a block of it takes; 0: the plain kernel runs
  int32_t most_queries = 0, most_splits = 0;
  int64_t partials = 0;

  int count() const { return static_cast<int>(problems.size()); }
  // Zeros that the fast kernel needs.
  size_t counters() const;

  // Its addresses on the GPU.
  struct Placed {
    const cuda::Problem* problems = nullptr;
    const cuda::WorkItem* items[2] = {};
    unsigned* counters = nullptr;  // null: merge() does it, in a launch of its own
    cuda::Partials partials{};
    float* log_sum = nullptr;
  };
  // All of it.
  void run(cuda::Gpu& gpu, const Placed& at) const;
  // Its parts: some of the items; some splits of some problems; and what run() merges last.
  void decode(cuda::Gpu& gpu, const Placed& at, const ItemRange& items) const;
  void decode_tails(cuda::Gpu& gpu, const Placed& at) const;
  void attend_simple(cuda::Gpu& gpu, const Placed& at, const ItemRange& problems,
                     const ItemRange& splits) const;
  void merge(cuda::Gpu& gpu, const Placed& at) const;

 private:
  void launch(cuda::Gpu& gpu, const Placed& at, const cuda::Layout& of, const cuda::WorkItem* first,
              size_t count) const;
};

}  // namespace kv
