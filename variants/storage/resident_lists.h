// Lists that attention reads beside the rows (queries, pages, the plan) stay on the GPU from step to step, for each layer
// and set of sequences: a step sends only the bytes that differ from the last step's, lengths above all.
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
    std::vector<std::byte> sent;  // its content
  };

  // The memory has a GPU.
  explicit ResidentLists(Memory& memory) : memory_(memory) {}

  // The lists for rows whose first one lies there, with room for `bytes`. New lists replace the least recently used ones if
  // there are many. May throw std::bad_alloc.
  Lists& of(const void* rows, size_t bytes);
  // Copies the upload into the lists, for later launches. Kernels leave lists unchanged: counters are zeros again.
  void send(const Upload& upload, Lists& to) const;
  // After a step that failed: all content is sent again.
  void forget() {
    for (Lists& lists : all_) lists.sent.clear();
  }

 private:
  Memory& memory_;
  std::list<Lists> all_;  // the one last used first
};

}  // namespace kv
