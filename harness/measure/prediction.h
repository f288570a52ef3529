// The effect of a cache on next-token predictions: the numbers at one position, and their summary with intervals.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "harness/math/stats.h"

namespace kv::measure {

// Probabilities of the next token.
struct Distribution {
  std::vector<double> log_p, p;  // [vocab_size]; nats
  int top = 0;                   // the likeliest token; the first of equals
};
Distribution distribution_of(std::span<const float> logits);
// -log p of the token that came, nats.
double loss_of(std::span<const float> logits, int came);

// One position, compared with the full f32 cache's distribution there.
struct Prediction {
  double loss = 0;         // -log p of the actual token, nats
  double loss_change = 0;  // minus the reference's loss
  double kl = 0;           // KL(reference || this), nats
  double p_change = 0;     // change of the actual token's probability
  bool same_top = true;
  bool right = false, full_right = false;  // the actual token is the likeliest; of the reference
};
Prediction compare_predictions(std::span<const float> logits, const Distribution& reference, int came);

// Losses of neighbouring tokens are correlated. Standard errors and bootstraps take stretches of this many positions
// as independent, not tokens.
inline constexpr int64_t kStretch = 64;

struct Mean {
  double value;
  math::ConfidenceInterval interval;  // 95 % bootstrap over stretches
};

struct PredictionSummary {
  int64_t count = 0;
  double loss = 0, loss_error = 0, loss_change_error = 0;  // mean, and standard errors
  Mean loss_change, kl, same_top;
  double kl_median = 0, kl_p99 = 0, kl_p999 = 0, kl_max = 0;
  double p_change_rms = 0;
};

// `predictions`: [sequences, length]. Summarises positions [first, last) of each sequence, at least one.
PredictionSummary summarise(std::span<const Prediction> predictions, int64_t length, int64_t first,
                            int64_t last);

}  // namespace kv::measure
