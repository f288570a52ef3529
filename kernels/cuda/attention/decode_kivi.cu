#include "kernels/cuda/attention/dispatch.h"

namespace kv::cuda {

Instance find_kivi(const Layout& layout, int queries) { return find_instance(KiviCodecs(), layout, queries); }

}  // namespace kv::cuda
