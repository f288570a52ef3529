// Encodes new rows into the slots that the retention chose: one kernel for every placement (pages) and codec (encode.h).
#pragma once

#include "kernels/cuda/encode/encode.h"
#include "kernels/cuda/rows/params.h"

namespace kv::cuda {

inline constexpr int kAppendWarps = 4;

KV_DEVICE UnitTask unit_task(const AppendParams& p, const AppendJob& job, int unit, int side, int inner) {
  const SideLayout& layout = side ? p.layout.v : p.layout.k;
  const int in_unit = inner * layout.encoding.group, slot = job.slots ? job.slots[unit] : job.first + unit;
  const RowPair to = locate(p.layout, job.pages, slot * p.layout.unit_rows + in_unit);
  const int64_t row_bytes = int64_t{p.layout.head_dim} * (p.half ? 2 : 4);
  return {.to = side ? to.v : to.k,
          .head_dim = p.layout.head_dim,
          .rows = (side ? job.v : job.k) + (int64_t{unit} * p.layout.unit_rows + in_unit) * row_bytes,
          .half = p.half};
}

// A warp takes a unit of the encoding: first all of K's, then all of V's.
// Grid: [append_blocks(layout, most units), jobs]; kAppendWarps warps.
KV_KERNEL append_rows(AppendParams p) {
  const AppendJob job = p.jobs[simt::block_y()];
  const int k_inner = p.layout.unit_rows / p.layout.k.encoding.group;
  const int v_inner = p.layout.unit_rows / p.layout.v.encoding.group;
  int work = simt::block_x() * kAppendWarps + simt::warp();
  const int side = work >= job.units * k_inner;
  if (side) work -= job.units * k_inner;
  const int inner = side ? v_inner : k_inner;
  if (work >= job.units * inner) return;
  encode(unit_task(p, job, work / inner, side, work % inner));
}

inline int append_blocks(const Layout& layout, int units) {
  const int warps =
      units * layout.unit_rows / layout.k.encoding.group + units * layout.unit_rows / layout.v.encoding.group;
  return (warps + kAppendWarps - 1) / kAppendWarps;
}

}  // namespace kv::cuda
