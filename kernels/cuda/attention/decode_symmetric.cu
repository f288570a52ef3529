#include "kernels/cuda/attention/dispatch.h"

const kv::cuda::FindInstance kv::cuda::find_symmetric = find_in<SymmetricCodecs>;
