// Lists that attention reads beside the rows (queries, pages, the plan) stay on the GPU from step to step, for each layer
// and set of sequences: a step sends only the bytes that differ from the last step's, lengths above all.
#pragma once

#include <functional>
#include <list>
#include <vector>

#include "variants/storage/gpu_batch.h"

namespace kv {

class ResidentLists {
 public:
  // The memory has a GPU.
  explicit ResidentLists(Memory& memory) : memory_(memory) {}

  // Copies what fill(upload) adds into the lists for rows whose first one lies there, for later launches. New lists replace
  // the least recently used ones if there are many. Kernels leave lists unchanged: counters are zeros again. May throw
  // std::bad_alloc.
  void send(const void* rows, const std::function<void(Upload&)>& fill);
  // After a step that failed: all content is sent again.
  void forget() {
    for (Lists& lists : all_) lists.sent.clear();
  }

 private:
  struct Lists {
    const void* rows = nullptr;
    Block block;                  // on the GPU
    std::vector<std::byte> sent;  // its content
  };
  Lists& of(const void* rows);

  Memory& memory_;
  std::list<Lists> all_;  // the one last used first
};

}  // namespace kv
