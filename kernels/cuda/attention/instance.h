// The compiled instances of decode.h, for those who launch them: dispatch.h makes them, a list a source file.
#pragma once

#include "kernels/cuda/attention/params.h"

namespace kv::cuda {

// What a launch needs to know of an instance.
struct Instance {
  void (*kernel)(DecodeParams);
  int shared_bytes;
  int queries;  // of a block
};

// For every list, in the file that compiles it.
Instance find_plain(const Layout& layout, int queries);
Instance find_fp8(const Layout& layout, int queries);
Instance find_block(const Layout& layout, int queries);
Instance find_token(const Layout& layout, int queries);
Instance find_symmetric(const Layout& layout, int queries);
Instance find_kivi(const Layout& layout, int queries);

}  // namespace kv::cuda
