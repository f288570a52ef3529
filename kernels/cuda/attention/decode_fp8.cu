#include "kernels/cuda/attention/dispatch.h"

namespace kv::cuda {

Instance find_fp8(const Layout& layout, int queries) { return find_instance(Fp8Codecs(), layout, queries); }

}  // namespace kv::cuda
