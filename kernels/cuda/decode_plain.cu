#include "kernels/cuda/dispatch.h"

namespace kv::cuda {

Instance find_plain(const Layout& layout, int group) { return find_instance(PlainCodecs(), layout, group); }

}  // namespace kv::cuda
