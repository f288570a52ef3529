// The Highway targets we build: SSE4 (no f16 conversion), AVX2, AVX3 (AVX-512), AVX3_DL (with VNNI's dot
// products). NEON and SVE where the compiler is for Arm. Where there is none of them, our own scalar path
// serves, and not what Highway has for that. Those that KVLAB_ISAS (kernels/cmake)
// does not name are left out. Include before any Highway header.
#pragma once

#define HWY_WANT_AVX3_DL
#define HWY_BROKEN_EMU128 1
#include <hwy/detect_targets.h>

#ifndef KVLAB_ABSENT_TARGETS
#define KVLAB_ABSENT_TARGETS 0
#endif

#undef HWY_DISABLED_TARGETS
#ifdef __clang__
// Highway 1.0 asks for AVX-VNNI there, which not every such machine has: Clang uses it, GCC does not.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | KVLAB_ABSENT_TARGETS)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | KVLAB_ABSENT_TARGETS)
#endif
