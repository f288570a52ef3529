// What append.h is launched with: plain data of the device's pointers, as in attention/params.h.
#pragma once

#include "kernels/cuda/rows/pages.h"

namespace kv::cuda {

// New units of one (sequence, layer, kv head): unit u goes to unit slots[u] of the pages, or to first + u
// where there are no slots.
struct AppendJob {
  const std::byte* k;  // [units * unit_rows, head_dim], f32 or f16
  const std::byte* v;
  const Page* pages;
  const int32_t* slots;  // [units] or null
  int32_t first;
  int32_t units;
};

struct AppendParams {
  Layout layout;
  const AppendJob* jobs;  // [blocks_y]
  bool half;              // the rows are f16
};

}  // namespace kv::cuda
