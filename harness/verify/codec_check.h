// Checks that a codec is as exact as it states: rows of N(0,1) come back with an error inside its interval.
//
// A workload's rows have no such limit, since one large channel may cost all others their bits. A codec is therefore
// judged by rows for which it states the error, and each stored row by the codec's own encoding of its token
// (misplaced_row).
#pragma once

#include <string>

#include "variants/core/codec.h"

namespace kv::verify {

// Returns the codec's broken statement, or empty if all hold, as they do for head_dim 32…512.
std::string codec_failure(const Codec& codec, int head_dim);

}  // namespace kv::verify
