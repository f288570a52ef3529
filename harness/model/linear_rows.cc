#include "harness/model/linear_rows.h"

#include <algorithm>
#include <cmath>

namespace kv::model {
namespace {

constexpr float kNormEpsilon = 1e-6f;  // added to the length of q and k, as in Qwen3-Next

// Offsets of the parts of a token's projections.
struct Parts {
  explicit Parts(const LinearShape& s)
      : keys(int64_t{s.key_heads} * s.key_dim),
        values(int64_t{s.value_heads} * s.value_dim),
        channels(2 * keys + values),
        gate(channels),
        beta(gate + values),
        alpha(beta + s.value_heads),
        all(alpha + s.value_heads) {}
  int64_t keys, values, channels, gate, beta, alpha, all;
};

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
float silu(float x) { return x * sigmoid(x); }
float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

// The window and behind it the sequence's n new inputs; the window becomes the end of that.
std::vector<float> with_history(const float* projected, int64_t n, const Parts& parts, int64_t kernel,
                                ConvolutionWindow& window) {
  const int64_t past = (kernel - 1) * parts.channels;
  window.resize(static_cast<size_t>(past));
  std::vector<float> inputs(window);
  inputs.reserve(static_cast<size_t>(past + n * parts.channels));
  for (int64_t t = 0; t < n; ++t)
    inputs.insert(inputs.end(), projected + t * parts.all, projected + t * parts.all + parts.channels);
  std::copy(inputs.end() - past, inputs.end(), window.begin());
  return inputs;
}

// One token of all channels, from the kernel's first input on.
void convolve(const float* inputs, const LayerWeights& layer, int64_t channels, float* out) {
  std::fill_n(out, channels, 0.0f);
  for (size_t at = 0; at < layer.convolution.size(); at += static_cast<size_t>(channels)) {
    const float *weight = layer.convolution.data() + at, *in = inputs + at;
    for (int64_t c = 0; c < channels; ++c) out[c] += weight[c] * in[c];
  }
  for (int64_t c = 0; c < channels; ++c) out[c] = silu(out[c]);
}

// A head of length `length`.
void copy_normed(const float* from, int dim, float length, float* to) {
  float squares = kNormEpsilon;
  for (int i = 0; i < dim; ++i) squares += from[i] * from[i];
  const float scale = length / std::sqrt(squares);
  for (int i = 0; i < dim; ++i) to[i] = scale * from[i];
}

}  // namespace

int64_t projected_values(const LinearShape& shape) { return Parts(shape).all; }

std::span<StepInput> LinearRows::lay_out(const LinearShape& s, const LayerWeights& layer,
                                         std::span<const SequenceId> ids, int64_t n, const float* projected,
                                         std::span<ConvolutionWindow> windows) {
  const Parts parts(s);
  const int64_t sequences = std::ssize(ids), keys = n * parts.keys, values = n * parts.values,
                gates = n * s.value_heads, kernel = std::ssize(layer.convolution) / parts.channels;
  for (std::vector<float>* rows : {&q_, &k_}) rows->resize(static_cast<size_t>(sequences * keys));
  for (std::vector<float>* rows : {&v_, &out_}) rows->resize(static_cast<size_t>(sequences * values));
  for (std::vector<float>* rows : {&alpha_, &beta_}) rows->resize(static_cast<size_t>(sequences * gates));
  inputs_.clear();
  for (int64_t i = 0; i < sequences; ++i) {
    float *q = q_.data() + i * keys, *k = k_.data() + i * keys, *v = v_.data() + i * values,
          *alpha = alpha_.data() + i * gates, *beta = beta_.data() + i * gates;
    inputs_.push_back({.sequence = ids[static_cast<size_t>(i)],
                       .n = n,
                       .q = q,
                       .k = k,
                       .v = v,
                       .out = out_.data() + i * values,
                       .alpha = alpha,
                       .beta = beta});
    const float* rows = projected + i * n * parts.all;
    const std::vector<float> inputs = with_history(rows, n, parts, kernel, windows[static_cast<size_t>(i)]);
#pragma omp parallel for if (n > 1)
    for (int64_t t = 0; t < n; ++t) {
      std::vector<float> mixed(static_cast<size_t>(parts.channels));
      convolve(inputs.data() + t * parts.channels, layer, parts.channels, mixed.data());
      const float scale = 1.0f / std::sqrt(static_cast<float>(s.key_dim));
      for (int64_t h = 0; h < s.key_heads; ++h) {
        const float* head = mixed.data() + h * s.key_dim;
        copy_normed(head, s.key_dim, scale, q + (h * n + t) * s.key_dim);
        copy_normed(head + parts.keys, s.key_dim, 1.0f, k + (h * n + t) * s.key_dim);
      }
      const float* row = rows + t * parts.all;
      for (int64_t h = 0; h < s.value_heads; ++h) {
        const float* head = mixed.data() + 2 * parts.keys + h * s.value_dim;
        std::copy_n(head, s.value_dim, v + (h * n + t) * s.value_dim);
        beta[h * n + t] = sigmoid(row[parts.beta + h]);
        const auto at = static_cast<size_t>(h);
        alpha[h * n + t] =
            std::exp(-layer.decay_rate[at] * softplus(row[parts.alpha + h] + layer.decay_bias[at]));
      }
    }
  }
  return inputs_;
}

void LinearRows::copy_out(const LinearShape& s, const LayerWeights& layer, float epsilon,
                          const float* projected, float* out) const {
  const Parts parts(s);
  const int64_t n = inputs_.front().n;
#pragma omp parallel for collapse(2) if (n > 1)
  for (size_t i = 0; i < inputs_.size(); ++i) {
    for (int64_t t = 0; t < n; ++t) {
      const int64_t token = static_cast<int64_t>(i) * n + t;
      const float* gate = projected + token * parts.all + parts.gate;
      for (int64_t h = 0; h < s.value_heads; ++h) {
        const float* from = inputs_[i].out + (h * n + t) * s.value_dim;
        float squares = 0.0f;
        for (int64_t c = 0; c < s.value_dim; ++c) squares += from[c] * from[c];
        const float scale = 1.0f / std::sqrt(squares / static_cast<float>(s.value_dim) + epsilon);
        const int64_t at = h * s.value_dim;
        for (int64_t c = 0; c < s.value_dim; ++c)
          out[token * parts.values + at + c] =
              scale * from[c] * layer.state_norm[static_cast<size_t>(c)] * silu(gate[at + c]);
      }
    }
  }
}

}  // namespace kv::model
