#include "variants/selection/largest.h"

#include <algorithm>
#include <numeric>

#include "kernels/math.h"

namespace kv::selection {

std::vector<RowRange> largest(std::span<const float> scores, std::span<int32_t> order, int64_t count,
                              int64_t rows_each, int64_t rows) {
  std::iota(order.begin(), order.end(), 0);
  const auto precedes = [&](int32_t a, int32_t b) {
    const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    return is_lighter(y, x) || (!is_lighter(x, y) && a < b);
  };
  const auto end = order.begin() + count;
  if (end != order.end()) std::nth_element(order.begin(), end - 1, order.end(), precedes);
  std::sort(order.begin(), end);
  std::vector<RowRange> ranges;
  for (auto at = order.begin(); at != end; ++at) {
    const int64_t begin = *at * rows_each, last = std::min(begin + rows_each, rows);
    if (!ranges.empty() && ranges.back().end == begin) {
      ranges.back().end = last;
    } else {
      ranges.push_back({begin, last});
    }
  }
  return ranges;
}

}  // namespace kv::selection
