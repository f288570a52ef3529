// The terminal that is written to.
#pragma once

#include <cstddef>

namespace kv::cli {

// Its columns; no limit where standard output is none. $COLUMNS goes first.
size_t terminal_width();

}  // namespace kv::cli
