#include "kernels/cuda/attention/dispatch.h"

const kv::cuda::FindInstance kv::cuda::find_token = find_in<TokenCodecs>;
