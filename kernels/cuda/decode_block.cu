#include "kernels/cuda/dispatch.h"

namespace kv::cuda {

Instance find_block(const Layout& layout, int group) { return find_instance(BlockCodecs(), layout, group); }

}  // namespace kv::cuda
