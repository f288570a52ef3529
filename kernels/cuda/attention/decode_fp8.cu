#include "kernels/cuda/attention/dispatch.h"

const kv::cuda::FindInstance kv::cuda::find_fp8 = find_in<Fp8Codecs>;
