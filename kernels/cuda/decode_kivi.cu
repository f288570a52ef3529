#include "kernels/cuda/dispatch.h"

namespace kv::cuda {

Instance find_kivi(const Layout& layout, int group) { return find_instance(KiviCodecs(), layout, group); }

}  // namespace kv::cuda
