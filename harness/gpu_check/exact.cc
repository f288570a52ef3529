#include "harness/gpu_check/exact.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace kv::gpu_check {
namespace {

// exp(score) of every row, over the largest; returns their sum.
double exponentials(const float* q, std::span<const float> k, size_t d, std::vector<double>& score) {
  double max = -INFINITY, sum = 0.0;
  for (size_t r = 0; r < score.size(); ++r) {
    double dot = 0.0;
    for (size_t i = 0; i < d; ++i) dot += double{q[i]} * double{k[r * d + i]};
    score[r] = dot / std::sqrt(static_cast<double>(d));
    max = std::max(max, score[r]);
  }
  for (double& s : score) sum += s = std::exp(s - max);
  return sum;
}

}  // namespace

Exact attend_exactly(std::span<const float> q, std::span<const float> k, std::span<const float> v,
                     int head_dim) {
  const auto d = static_cast<size_t>(head_dim);
  Exact exact{std::vector<double>(q.size(), 0.0), std::vector<double>(k.size() / d, 0.0)};
  std::vector<double> p(k.size() / d);
  for (size_t first = 0; first < q.size(); first += d) {
    const double sum = exponentials(q.data() + first, k, d, p);
    for (size_t r = 0; r < p.size(); ++r) {
      exact.weights[r] += p[r] / sum;
      for (size_t i = 0; i < d; ++i) exact.out[first + i] += p[r] / sum * double{v[r * d + i]};
    }
  }
  return exact;
}

double relative_error(const std::vector<float>& got, const std::vector<double>& want) {
  double error = 0.0, norm = 0.0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

}  // namespace kv::gpu_check
