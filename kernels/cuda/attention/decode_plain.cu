#include "kernels/cuda/attention/dispatch.h"

const kv::cuda::FindInstance kv::cuda::find_plain = find_in<PlainCodecs>;
