// The fields that cells and buckets of positions share.
#pragma once

#include <vector>

#include "harness/results/cell_result.h"

namespace kv::results {

template <class Row>
std::vector<Field<Row>> loss_fields() {
  return {
      {"predictions", "", &Row::predictions,
       "quality, recall, stream: scored next-token predictions, of all sequences"},
      {"loss", "nats", &Row::loss, "mean of -log p of the token that came"},
      {"loss_se", "nats", &Row::loss_se, "its standard error, over stretches of 64 positions"},
  };
}

template <class Row>
std::vector<Field<Row>> comparison_fields() {
  return {
      {"loss_change", "nats", &Row::loss_change,
       "mean change of the loss against `versus` on the same predictions, paired"},
      {"loss_change_ci_low", "nats", &Row::loss_change_ci_low,
       "95 % bootstrap interval over stretches of 64 positions"},
      {"loss_change_ci_high", "nats", &Row::loss_change_ci_high, "its upper end"},
      {"kl_mean", "nats", &Row::kl_mean, "KL(full f32 cache || variant) of the next token"},
      {"kl_mean_ci_low", "nats", &Row::kl_mean_ci_low, "95 % bootstrap interval of kl_mean"},
      {"kl_mean_ci_high", "nats", &Row::kl_mean_ci_high, "its upper end"},
      {"kl_median", "nats", &Row::kl_median, "the median of this KL over predictions"},
      {"kl_p99", "nats", &Row::kl_p99, "its 99th percentile"},
      {"kl_max", "nats", &Row::kl_max, "its largest"},
      {"top1_agreement", "1", &Row::top1_agreement,
       "share of predictions whose most likely token is that of the full f32 cache"},
      {"top1_agreement_ci_low", "1", &Row::top1_agreement_ci_low,
       "95 % bootstrap interval of top1_agreement"},
      {"top1_agreement_ci_high", "1", &Row::top1_agreement_ci_high, "its upper end"},
      {"p_change_rms", "1", &Row::p_change_rms,
       "root mean square of the change of the correct token's probability"},
  };
}

}  // namespace kv::results
