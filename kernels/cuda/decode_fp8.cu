#include "kernels/cuda/dispatch.h"

namespace kv::cuda {

Instance find_fp8(const Layout& layout, int group) { return find_instance(Fp8Codecs(), layout, group); }

}  // namespace kv::cuda
