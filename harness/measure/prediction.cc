#include "harness/measure/prediction.h"

#include <algorithm>
#include <cmath>

namespace kv::measure {
namespace {

// Sums over stretches of positions; no stretch crosses from one sequence into the next.
template <class Get>
std::vector<math::Stretch> stretches(std::span<const Prediction> predictions, int64_t length, int64_t first,
                                     int64_t last, Get get) {
  std::vector<math::Stretch> out;
  const auto sequences = static_cast<int64_t>(predictions.size()) / length;
  for (int64_t s = 0; s < sequences; ++s) {
    for (int64_t at = first; at < last; at += kStretch) {
      const int64_t count = std::min(kStretch, last - at);
      double sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += get(predictions[static_cast<size_t>(s * length + at + i)]);
      out.push_back({sum, static_cast<double>(count)});
    }
  }
  return out;
}

// A logit less the normaliser is a log-probability.
struct Softmax {
  explicit Softmax(std::span<const float> logits) {
    const auto largest = std::max_element(logits.begin(), logits.end());
    top = static_cast<int>(largest - logits.begin());
    double sum = 0;
    for (const float x : logits) sum += std::exp(double{x} - *largest);
    normaliser = *largest + std::log(sum);
  }

  int top;
  double normaliser;
};

}  // namespace

Distribution distribution_of(std::span<const float> logits) {
  const Softmax softmax(logits);
  Distribution d{.log_p = {}, .p = {}, .top = softmax.top};
  d.log_p.reserve(logits.size());
  d.p.reserve(logits.size());
  for (const float x : logits) {
    d.log_p.push_back(x - softmax.normaliser);
    d.p.push_back(std::exp(d.log_p.back()));
  }
  return d;
}

double loss_of(std::span<const float> logits, int came) {
  return Softmax(logits).normaliser - logits[static_cast<size_t>(came)];
}

Prediction compare_predictions(std::span<const float> logits, const Distribution& reference, int came) {
  const Softmax got(logits);
  const auto token = static_cast<size_t>(came);
  double kl = 0;
  for (size_t i = 0; i < logits.size(); ++i)
    kl += reference.p[i] * (reference.log_p[i] - (logits[i] - got.normaliser));
  const double log_p = logits[token] - got.normaliser;
  return {.loss = -log_p,
          .loss_change = reference.log_p[token] - log_p,
          .kl = std::max(0.0, kl),  // rounding can make a zero divergence negative
          .p_change = std::exp(log_p) - reference.p[token],
          .same_top = got.top == reference.top,
          .right = got.top == came,
          .full_right = reference.top == came};
}

PredictionSummary summarise(std::span<const Prediction> predictions, int64_t length, int64_t first,
                            int64_t last) {
  const auto of = [&](auto get) { return stretches(predictions, length, first, last, get); };
  const auto mean = [&](auto get) {
    const std::vector<math::Stretch> parts = of(get);
    return Mean{mean_of(parts), math::mean_interval(parts)};
  };
  const std::vector<math::Stretch> losses = of([](const Prediction& p) { return p.loss; });
  PredictionSummary s;
  s.loss = mean_of(losses);
  s.loss_error = math::standard_error(losses);
  const auto change = [](const Prediction& p) { return p.loss_change; };
  s.loss_change = mean(change);
  s.loss_change_error = math::standard_error(of(change));
  s.kl = mean([](const Prediction& p) { return p.kl; });
  s.same_top = mean([](const Prediction& p) { return p.same_top ? 1.0 : 0.0; });
  s.p_change_rms = std::sqrt(mean_of(of([](const Prediction& p) { return p.p_change * p.p_change; })));
  std::vector<double> kl;
  for (size_t at = 0; at < predictions.size(); at += static_cast<size_t>(length)) {
    for (int64_t i = first; i < last; ++i) kl.push_back(predictions[at + static_cast<size_t>(i)].kl);
  }
  s.count = static_cast<int64_t>(kl.size());
  s.kl_median = math::median(kl);
  s.kl_p99 = math::percentile(kl, 99);
  s.kl_p999 = math::percentile(kl, 99.9);
  s.kl_max = *std::max_element(kl.begin(), kl.end());
  return s;
}

}  // namespace kv::measure
