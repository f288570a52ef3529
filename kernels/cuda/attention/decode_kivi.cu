#include "kernels/cuda/attention/dispatch.h"

KV_COMPILE_INSTANCES(find_kivi, KiviCodecs)
