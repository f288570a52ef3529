// What a cache does to next-token predictions: the numbers at one position, and their summary with intervals.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "harness/math/stats.h"

namespace kv::measure {

// Log-probabilities of the next token, nats.
struct Distribution {
  std::vector<double> log_p;  // [vocab_size]
  int top = 0;                // the likeliest token, the first of equals
};
Distribution distribution_of(std::span<const float> logits);

// One position, against the full f32 cache's distribution there.
struct Prediction {
  double loss = 0;         // -log p of the token that came, nats
  double loss_change = 0;  // over the reference's
  double kl = 0;           // KL(reference || this), nats
  double p_change = 0;     // of the token that came
  bool same_top = true;
};
Prediction compare_predictions(const Distribution& got, const Distribution& reference, int came);

// Neighbouring tokens' losses go together, so stretches of this many positions of a sequence, not tokens, are
// what standard errors and bootstraps take as independent.
inline constexpr int64_t kStretch = 64;

struct Mean {
  double value;
  math::ConfidenceInterval interval;  // 95 % bootstrap over stretches
};

struct PredictionSummary {
  int64_t count = 0;
  double loss = 0, loss_error = 0;  // mean and its standard error
  Mean loss_change, kl, same_top;
  double kl_median = 0, kl_p99 = 0, kl_max = 0;
  double p_change_rms = 0;
};

// `predictions` [sequences, length]; positions [first, last) of each sequence are taken, at least one.
PredictionSummary summarise(std::span<const Prediction> predictions, int64_t length, int64_t first,
                            int64_t last);

}  // namespace kv::measure
