// What attention reads beside the rows (queries, lists of pages, the plan) stays on the GPU from step to step, for each
// layer and set of sequences: of a step's, only what differs from the last one's is sent, lengths above all.
#pragma once

#include <list>
#include <vector>

#include "variants/storage/gpu_batch.h"

namespace kv {

class ResidentLists {
 public:
  struct Lists {
    const void* rows = nullptr;
    Block block;                  // on the GPU
    std::vector<std::byte> sent;  // what it holds
  };

  // The memory has a GPU.
  explicit ResidentLists(Memory& memory) : memory_(memory) {}

  // Those over rows of which the first lie there, with room for `bytes`. New ones take the place of those that were used
  // longest ago, where there are many. May throw std::bad_alloc.
  Lists& of(const void* rows, size_t bytes);
  // Makes them hold what is uploaded, for later launches. Kernels leave them as they were: counters are zeros again.
  void send(const Upload& upload, Lists& to) const;

 private:
  Memory& memory_;
  std::list<Lists> all_;  // the one last used first
};

}  // namespace kv
