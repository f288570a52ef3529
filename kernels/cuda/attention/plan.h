// How decode's work is cut: host code, from shapes alone, so that results do not depend on what else runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cuda/attention/params.h"

namespace kv::cuda {

// Tensor cores cut their sums off and do not round them (tests' simt/tensor_core.h has the sources), so a sum's
// error grows with its rows. What is merged from items of so many rows stays far under the 5e-6 demanded.
inline constexpr int32_t kMostItemRows = 4096;

// Rows of a work item when `rows`, those of all problems, each as often as blocks of queries read it, are to
// keep so many multiprocessors busy: enough items that their ends overlap, none so small that its partial
// result costs more than its rows.
inline int32_t item_rows(int64_t rows, int multiprocessors) {
  constexpr int64_t kItemsEach = 12;  // three blocks at a time, four times over
  constexpr int64_t kLeast = 64;
  const int64_t each = rows / (kItemsEach * multiprocessors);
  return static_cast<int32_t>(std::clamp<int64_t>(each, kLeast, kMostItemRows));
}

// Cuts rows [0, rows) of a problem's pages, or of its tail, into equal items of about `each` rows that begin
// at multiples of 64; returns how many partial results the problem has now.
inline int32_t cut_rows(int32_t problem, int32_t rows, int32_t each, int32_t splits,
                        std::vector<WorkItem>& items) {
  if (rows == 0) return splits;
  const int32_t parts = (rows + each - 1) / each;
  const int32_t step = ((rows + parts - 1) / parts + 63) / 64 * 64;
  for (int32_t begin = 0; begin < rows; begin += step) {
    items.push_back({problem, splits++, begin, std::min(begin + step, rows)});
  }
  return splits;
}

}  // namespace kv::cuda
