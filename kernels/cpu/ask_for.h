// Places asked for before they are written: a new token's rows go to as many, none of which is in a cache,
// and each store would wait for its own. Private to kernels/cpu.
#pragma once

#include "kernels/encoding.h"

namespace kv {

constexpr size_t kUnitsAhead = 4;

inline void ask_for(const UnitJob& job, int64_t data_bytes) {
  for (int64_t at = 0; at < data_bytes; at += 64) __builtin_prefetch(job.data + at, 1);
  __builtin_prefetch(job.data + data_bytes - 1, 1);
  if (job.meta) __builtin_prefetch(job.meta, 1);
}

}  // namespace kv
