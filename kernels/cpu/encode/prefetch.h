// Places prefetched before they are written: a new token's rows go to as many, none of which is in a cache, and
// each store would wait for its own. Private to kernels/cpu.
#pragma once

#include "kernels/encode.h"

namespace kv::cpu {

constexpr size_t kPrefetchUnits = 4;

inline void prefetch(const UnitJob& job, int64_t data_bytes) {
  for (int64_t at = 0; at < data_bytes; at += 64) __builtin_prefetch(job.data + at, 1);
  __builtin_prefetch(job.data + data_bytes - 1, 1);
  if (job.meta) __builtin_prefetch(job.meta, 1);
}

}  // namespace kv::cpu
