#include "kernels/cuda/attention/dispatch.h"

namespace kv::cuda {

Instance find_symmetric(const Layout& layout, int queries) {
  return find_instance(SymmetricCodecs(), layout, queries);
}

}  // namespace kv::cuda
