// A loop forks only if its work is worth waking the threads.
#pragma once

#include <cstdint>

namespace kv {

// Elements of rows below which a parallel loop costs more than it saves.
inline constexpr int64_t kParallelElements = 1 << 16;

// Tests of threads set it, since their loops are short.
inline bool every_loop_forks = false;

inline bool worth_threads(int64_t work, int64_t least) { return every_loop_forks || work > least; }

}  // namespace kv
