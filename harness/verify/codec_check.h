// Whether a codec is as good as it says: rows of N(0,1) come back with an error inside its interval.
//
// How far a workload's rows are off has no such limit, since a large channel may cost all others their bits. So a
// codec is judged by rows for which it states the error, and each stored row by what that codec makes of it
// (misplaced_row).
#pragma once

#include <string>

#include "variants/core/codec.h"

namespace kv::verify {

// Empty if the codec keeps what it states, which it does for head_dim 32…512, else what does not.
std::string codec_failure(const Codec& codec, int head_dim);

}  // namespace kv::verify
