#include "kernels/cuda/dispatch.h"

namespace kv::cuda {

Instance find_token(const Layout& layout, int group) { return find_instance(TokenCodecs(), layout, group); }

}  // namespace kv::cuda
