// The scalar attention path: one row after another, FP64 sums, no tiles and no vectors. It is the oracle of
// the vector path, and shares only the task's definition with it.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/attention/attention_task.h"
#include "kernels/cpu/attention/int8_scalar.h"
#include "kernels/format/descriptor.h"

namespace kv::cpu {
namespace {

// Calls visit(row, k, v) with the decoded rows of [begin, end).
template <class Visit>
void for_each_row(const AttentionTask& task, int head_dim, Visit visit) {
  std::vector<float> k(static_cast<size_t>(head_dim)), v(static_cast<size_t>(head_dim));
  SpanCursor at = task.start;
  for (int64_t row = task.row_begin; row < task.row_end; ++row, ++at.row) {
    while (at.row == task.spans[at.span].rows) at = {at.span + 1, 0};
    const Span& span = task.spans[at.span];
    const auto decode = [&](const Side& side, float* out) {
      const int64_t unit = at.row / side.encoding.group;
      const std::byte* meta = side.meta ? side.meta + unit * side.meta_stride : nullptr;
      descriptor_of(side.encoding.format)
          .decode(side.encoding, head_dim, side.data + unit * side.stride, meta,
                  static_cast<int>(at.row % side.encoding.group), 1, out);
    };
    decode(span.k, k.data());
    decode(span.v, v.data());
    visit(row, k, v);
  }
}

// Query i's scores -> weights and their bases, tile by tile.
void weigh(const AttentionTask& task, int64_t i) {
  float* weights = task.weights + i * task.weights_stride;
  const int64_t seen = std::min(task.row_end, task.visible_rows(i));
  for (int64_t first = task.row_begin; first < seen; first += kTileRows) {
    const int64_t end = std::min(seen, first + kTileRows);
    const float base = *std::max_element(weights + first, weights + end);
    task.bases[i * task.bases_stride + first / kTileRows] = base;
    for (int64_t row = first; row < end; ++row) weights[row] = std::exp(weights[row] - base);
  }
}

void run_part(const AttentionTask& task, int head_dim) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim)), cap = double{task.problem->score_cap};
  for (int64_t i = 0; i < task.queries; ++i) {
    const float* q = task.query(i, head_dim);
    double max = -INFINITY, sum = 0.0;
    std::vector<double> out(static_cast<size_t>(head_dim), 0.0);
    if (task.resume) {
      max = double{task.state[i].max};
      sum = double{task.state[i].sum};
      std::copy_n(task.sum + i * head_dim, head_dim, out.begin());
    }
    for_each_row(task, head_dim, [&](int64_t row, const std::vector<float>& k, const std::vector<float>& v) {
      if (row >= task.visible_rows(i)) return;
      double score = 0.0;
      for (int d = 0; d < head_dim; ++d) score += static_cast<double>(q[d]) * static_cast<double>(k[d]);
      score *= scale;
      if (cap > 0) score = cap * std::tanh(score / cap);
      if (task.weights) task.weights[i * task.weights_stride + row] = static_cast<float>(score);
      if (score > max) {
        const double rescale = std::exp(max - score);
        for (double& x : out) x *= rescale;
        sum *= rescale;
        max = score;
      }
      const double p = std::exp(score - max);
      sum += p;
      for (int d = 0; d < head_dim; ++d) out[d] += p * static_cast<double>(v[d]);
    });
    if (task.weights) weigh(task, i);
    // The maximum is rounded to f32 for the state, so the sums are brought to the rounded one.
    const float max32 = static_cast<float>(max);
    const double to_rounded = sum > 0.0 ? std::exp(max - static_cast<double>(max32)) : 0.0;
    task.state[i] = {max32, static_cast<float>(sum * to_rounded)};
    for (int d = 0; d < head_dim; ++d) task.sum[i * head_dim + d] = static_cast<float>(out[d] * to_rounded);
  }
}

// Rows are taken kSplitRows at a time whether or not they come in pieces, so that sums are rounded alike.
void run_task(const AttentionTask& task, int head_dim) {
  if (task.problem->arithmetic == Arithmetic::kInt8 && task.problem->n < kPrefillTokens)
    return run_task_int8(task, head_dim);
  AttentionTask part = task;
  do {
    part.row_end = std::min(task.row_end, part.row_begin / kSplitRows * kSplitRows + kSplitRows);
    if (part.row_end > part.row_begin || !part.resume) run_part(part, head_dim);
    if (part.row_end < task.row_end) advance(task.spans, part.start, part.row_end - part.row_begin);
    part.row_begin = part.row_end;
    part.resume = true;
  } while (part.row_end < task.row_end);
}

}  // namespace

void run_tasks_scalar(TaskQueue& queue, int head_dim) {
  for (auto tasks = queue.claim(); !tasks.empty(); tasks = queue.claim()) {
    for (const AttentionTask& task : tasks) run_task(task, head_dim);
  }
}

}  // namespace kv::cpu
