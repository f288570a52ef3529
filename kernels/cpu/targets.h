// The Highway targets we build: SSE4 (no f16 conversion), AVX2, AVX3 (AVX-512), AVX3_DL (with VNNI's dot
// products), and Highway's one-lane fallback. NEON and SVE where the compiler is for Arm. Include before any
// Highway header.
#pragma once

#define HWY_WANT_AVX3_DL
#include <hwy/detect_targets.h>

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS HWY_SSSE3
