#include "kernels/cuda/attention/dispatch.h"

namespace kv::cuda {

Instance find_plain(const Layout& layout, int queries) {
  return find_instance(PlainCodecs(), layout, queries);
}

}  // namespace kv::cuda
