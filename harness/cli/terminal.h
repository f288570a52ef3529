// The terminal on standard output.
#pragma once

#include <cstddef>

namespace kv::cli {

// Its width in columns; unlimited if standard output is no terminal. $COLUMNS takes precedence.
size_t terminal_width();

}  // namespace kv::cli
