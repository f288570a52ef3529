// Attention with queries and weights of 8 bits (Arithmetic::kInt8), in plain loops: the oracle of block_scores.cc and
// int8_values.cc, with which it shares only the meaning of a task, and what runs where there are no vectors.
//
//   score   sum over blocks of (step of q) (scale of k) (sum of q8 (code of k))      step: largest of the block's q / 127
//   value   sum over tiles of step (sum of w8 (code of v))                           w8: p (scale of v), in steps of the
//                                                                    largest such number of the tile and block / 255, or
//                                                                    / 127 where scales have a sign (q4_0)
//
// Sides without codes in blocks, as the newest rows that a codec keeps raw, are multiplied as they are.
#include "kernels/cpu/attention/int8_scalar.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/format/descriptor.h"
#include "kernels/format/ggml_format.h"

namespace kv::cpu {
namespace {

// A row of one side: value i is code[i] * scale[i / kGgmlBlock], or code[i] itself if the side has no such codes.
struct CodedRow {
  Encoding encoding;
  std::vector<float> code, scale;
  bool in_blocks() const { return !scale.empty(); }
};

CodedRow read_row(const Side& side, int64_t row, int head_dim) {
  CodedRow out{side.encoding, std::vector<float>(static_cast<size_t>(head_dim)), {}};
  const FormatDescriptor& format = descriptor_of(side.encoding.format);
  const int64_t unit = row / side.encoding.group;
  const std::byte* meta = side.meta ? side.meta + unit * side.meta_stride : nullptr;
  format.decode(side.encoding, head_dim, side.data + unit * side.stride, meta,
                static_cast<int>(row % side.encoding.group), 1, out.code.data());
  if (!int8_reason(side.encoding).empty()) return out;
  for (int i = 0; i < head_dim; ++i) {
    const float scale = f16_to_f32(load<uint16_t>(meta, i / kGgmlBlock));
    if (i % kGgmlBlock == 0) out.scale.push_back(scale);
    out.code[static_cast<size_t>(i)] =
        scale == 0.0f ? 0.0f : std::round(out.code[static_cast<size_t>(i)] / scale);
  }
  return out;
}

constexpr float kSigned = 127.0f, kUnsigned = 255.0f;  // the largest number of 8 bits

// x -> whole numbers of at most `top`; returns their step.
float code_int8(std::span<float> x, float top) {
  float largest = 0.0f;
  for (const float v : x) largest = std::max(largest, std::abs(v));
  const float inverse = largest > 0.0f ? top / largest : 0.0f;
  for (float& v : x) v = std::nearbyint(v * inverse);
  return largest / top;
}

double score_of(std::vector<float> q, const CodedRow& k) {
  double score = 0.0;
  for (size_t first = 0; first < q.size(); first += kGgmlBlock) {
    const size_t count = std::min<size_t>(kGgmlBlock, q.size() - first);
    double step = 1.0, sum = 0.0;
    if (k.in_blocks())
      step = double{code_int8(std::span(q).subspan(first, count), kSigned)} *
             double{k.scale[first / kGgmlBlock]};
    for (size_t i = first; i < first + count; ++i) sum += double{q[i]} * double{k.code[i]};
    score += step * sum;
  }
  return score;
}

// Rows of one tile that are stored alike, under probabilities p -> added to out.
void add_values(std::span<const CodedRow> rows, std::span<const double> p, std::vector<double>& out) {
  for (size_t first = 0; first < out.size(); first += kGgmlBlock) {
    std::vector<float> weights;
    for (size_t j = 0; j < rows.size(); ++j)
      weights.push_back(static_cast<float>(p[j]) *
                        (rows[j].in_blocks() ? rows[j].scale[first / kGgmlBlock] : 1.0f));
    const float top = rows[0].encoding.format == Format::kQ8_0 ? kUnsigned : kSigned;
    const double step = rows[0].in_blocks() ? double{code_int8(weights, top)} : 1.0;
    for (size_t i = first; i < std::min(out.size(), first + kGgmlBlock); ++i) {
      double sum = 0.0;
      for (size_t j = 0; j < rows.size(); ++j) sum += double{weights[j]} * double{rows[j].code[i]};
      out[i] += step * sum;
    }
  }
}

struct TileRows {
  std::vector<CodedRow> k, v;
};

void attend_tile(const AttentionTask& task, const TileRows& tile, int64_t row, int64_t query, int head_dim) {
  const float* q = task.query(query, head_dim);
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim)), cap = double{task.problem->score_cap};
  const auto seen = static_cast<size_t>(
      std::clamp<int64_t>(task.visible_rows(query) - row, 0, static_cast<int64_t>(tile.k.size())));
  if (seen == 0) return;
  std::vector<double> p;
  for (size_t j = 0; j < seen; ++j) {
    const double score = scale * score_of({q, q + head_dim}, tile.k[j]);
    p.push_back(cap > 0 ? cap * std::tanh(score / cap) : score);
  }
  SoftmaxState& state = task.state[query];
  float* sum = task.sum + query * head_dim;
  const float max = std::max(state.max, static_cast<float>(*std::max_element(p.begin(), p.end())));
  const double rescale = state.sum > 0.0f ? std::exp(double{state.max} - double{max}) : 0.0;
  double total = rescale * double{state.sum};
  for (double& x : p) total += x = std::exp(x - double{max});
  state = {max, static_cast<float>(total)};
  std::vector<double> out(sum, sum + head_dim);
  for (double& x : out) x *= rescale;
  for (size_t first = 0, end; first < seen; first = end) {
    for (end = first + 1; end < seen && tile.v[end].encoding == tile.v[first].encoding &&
                          tile.k[end].encoding == tile.k[first].encoding;)
      ++end;
    add_values(std::span(tile.v).subspan(first, end - first), std::span(p).subspan(first, end - first), out);
  }
  for (int i = 0; i < head_dim; ++i) sum[i] = static_cast<float>(out[static_cast<size_t>(i)]);
  if (!task.weights) return;
  task.bases[query * task.bases_stride + row / kTileRows] = max;
  for (size_t j = 0; j < seen; ++j)
    task.weights[query * task.weights_stride + row + static_cast<int64_t>(j)] = static_cast<float>(p[j]);
}

}  // namespace

void run_task_int8(const AttentionTask& task, int head_dim) {
  if (!task.resume) {
    std::fill_n(task.state, task.queries, SoftmaxState());
    std::fill_n(task.sum, task.queries * head_dim, 0.0f);
  }
  SpanCursor at = task.start;
  for (int64_t row = task.row_begin; row < task.row_end; row += kTileRows) {
    TileRows tile;
    for (int64_t j = row; j < std::min(row + kTileRows, task.row_end); ++j) {
      const Span& span = task.spans[at.span];
      tile.k.push_back(read_row(span.k, at.row, head_dim));
      tile.v.push_back(read_row(span.v, at.row, head_dim));
      advance(task.spans, at, 1);
    }
    for (int64_t i = 0; i < task.queries; ++i) attend_tile(task, tile, row, i, head_dim);
  }
}

}  // namespace kv::cpu
