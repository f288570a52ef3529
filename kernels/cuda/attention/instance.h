// The compiled instances of decode.h and chunk.h for launching; dispatch.h makes them, a list a source file.
#pragma once

#include "kernels/cuda/rows/params.h"

namespace kv::cuda {

// An instance and its launch parameters.
struct Instance {
  void (*kernel)(DecodeParams);
  int shared_bytes;
  int queries;           // a block
  int most_item_rows;    // for the error that is demanded
  bool takes_tail;       // its items may be raw rows behind the pages
  int blocks_of_sm = 1;  // that one multiprocessor holds; the Gpu knows
};

// One for every list, in the file that compiles the list.
using FindInstance = Instance (*)(const Layout& layout, int queries, int most_shared_bytes);
extern const FindInstance find_plain, find_fp8, find_block, find_token, find_symmetric, find_kivi;

// The instance for these rows and queries; without a kernel if there is none that fits a block's shared memory.
inline Instance find_instance(const Layout& layout, int queries, int most_shared_bytes) {
  for (const auto find_in : {find_plain, find_fp8, find_block, find_token, find_symmetric, find_kivi}) {
    const Instance found = find_in(layout, queries, most_shared_bytes);
    if (found.kernel) return found;
  }
  return {};
}

}  // namespace kv::cuda
