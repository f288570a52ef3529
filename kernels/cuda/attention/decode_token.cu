#include "kernels/cuda/attention/dispatch.h"

namespace kv::cuda {

Instance find_token(const Layout& layout, int queries) {
  return find_instance(TokenCodecs(), layout, queries);
}

}  // namespace kv::cuda
