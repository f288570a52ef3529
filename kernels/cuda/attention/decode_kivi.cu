#include "kernels/cuda/attention/dispatch.h"

const kv::cuda::FindInstance kv::cuda::find_kivi = find_in<KiviCodecs>;
