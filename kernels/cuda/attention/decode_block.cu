#include "kernels/cuda/attention/dispatch.h"

namespace kv::cuda {

Instance find_block(const Layout& layout, int queries) {
  return find_instance(BlockCodecs(), layout, queries);
}

}  // namespace kv::cuda
