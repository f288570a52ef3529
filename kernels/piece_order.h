// The order in which attention may take rows that come in pieces.
#pragma once

#include <span>

#include "kernels/attention.h"

namespace kv {

// True if PiecewiseAttention takes the pieces of these problems in any order: in steps of few queries each
// piece has partial results of its own. Pieces then begin at multiples of kSplitRows, too.
bool pieces_take_any_order(std::span<const HeadQueries> problems);

}  // namespace kv
