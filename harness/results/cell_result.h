// A cell's result, a row of cells.csv: what was measured of one variant at one sweep point. Every field is
// filled in once, by whoever measures it; what was not measured stays absent. cell_schema() says what each
// field means.
#pragma once

#include <string>
#include <vector>

#include "harness/results/draft_fields.h"
#include "harness/results/peer_fields.h"
#include "harness/results/replay_fields.h"
#include "harness/results/schema.h"
#include "harness/verify/metrics/metrics.h"

namespace kv::results {

// How well a model predicts with a cache: of a cell, or of a bucket of positions.
struct PredictionResult {
  Integer predictions;
  Number loss, loss_se;
  Number loss_change, loss_change_ci_low, loss_change_ci_high;
  Number kl_mean, kl_mean_ci_low, kl_mean_ci_high, kl_median, kl_p99, kl_max;
  Number top1_agreement, top1_agreement_ci_low, top1_agreement_ci_high;
  Number p_change_rms;
};

struct CellResult : PredictionResult, ReplayResult, DraftResult, PeerResult {
  // Which cell it is.
  std::string cell, variant, device;
  // Its stages, where it has a cache.
  std::string placement, codec, retention, selection, layer_specs;
  Number bits_per_value;
  Integer threads;
  std::string experiment, phase, workload;
  Integer layers, q_heads, kv_heads, head_dim, batch, seq_len;
  std::string lengths, arm;
  Integer chunk_tokens;
  Status status = Status::kNone;
  std::string reason, kernel, host, forward_device;

  Integer bytes_payload, bytes_metadata, bytes_slack, bytes_workspace_peak, bytes_copied, bytes_predicted;
  Integer bytes_device_peak, rss_peak_bytes;

  // Times of a decode step, and of attention alone over caches that are not in the last-level cache.
  Number append_p50_us, view_p50_us, attend_p50_us;
  Number step_p50_us, step_p90_us, step_p99_us, step_max_us, step_ci_low_us, step_ci_high_us;
  Number cold_attend_p50_us, cold_ci_low_us, cold_ci_high_us;
  // The same by the GPU's own clock, and how fast its multiprocessors ran meanwhile.
  Number gpu_p50_us, gpu_ci_low_us, gpu_ci_high_us;
  Integer gpu_sm_mhz_least, gpu_sm_mhz_most;

  // A step of a whole model: what else it takes, and its own roofline.
  std::string weights, weights_type, context;
  Number projections_p50_us, state_p50_us, rest_p50_us, tokens_per_s_ci_low, tokens_per_s_ci_high;
  Number weight_bytes_per_token, cache_bytes_per_token;
  Integer projection_multiply_adds, bytes_state;
  Number state_bound_us, err_state_rel_l2;
  Number weights_gbps, projections_gbps, projections_share;
  Number weights_bound_us, step_bound_us, step_bound_share, cache_share;

  // The roofline, hot and cold.
  Number read_gbps, ceiling_gbps, ceiling_share;
  Number cold_read_gbps, cold_ceiling_gbps, cold_ceiling_share;
  Integer multiply_adds;
  Number multiply_add_peak_per_s, multiply_add_peak_spread;
  std::string bound;
  Number bound_us, bound_share;
  std::string cold_bound;
  Number cold_bound_us, cold_bound_share;

  // Tiers, where a placement has several: bytes held (on disk: bytes_disk) and read by a step, and bandwidths.
  Integer bytes_hot, bytes_warm;
  Integer read_hot_bytes, read_warm_bytes, read_disk_bytes;
  Number hot_read_gbps, hot_ceiling_gbps, hot_ceiling_share;
  Number warm_read_gbps, warm_ceiling_gbps, warm_ceiling_share;
  Number disk_read_gbps, disk_ceiling_gbps, disk_ceiling_share, disk_device_share;
  Number disk_hidden_share;
  std::string simulated;
  std::string tier_bound;
  Number tier_bound_us, tier_bound_share;

  // Errors: one number a row of the metrics table, and the error split by cause.
  std::vector<Number> metrics = std::vector<Number>(verify::metrics().size());
  Number err_ci_low, err_ci_high;
  Number err_codec_rel_l2, err_retention_rel_l2, err_kernel_rel_l2;

  // Of a selection: what attention reads, what that costs in error, and whether it is the FP64 selection's choice.
  Integer bytes_read;
  Number err_selection_rel_l2;
  std::string selection_check;
  Integer selection_choices, selection_disputed;

  // What single experiments add.
  Number waste_share, masked_share;
  Number prefill_p50_us, prefill_ci_low_us, prefill_ci_high_us, prefill_tokens_per_s;
  Integer err_heads, err_positions, kept_tokens, keeps_all;
  std::string err_sample;
  Number held_bytes_per_token;
  std::string eviction_check;
  Integer policy_choices, policy_disputed;
  Integer bytes_disk;
  std::string series;
  Number save_p50_us, load_p50_us, freeze_p50_us, unfreeze_p50_us, fork_p50_us, compact_p50_us;
  Integer saved_bytes, fork_bytes, compact_moved_bytes, compact_freed_bytes;
  Number perplexity, perplexity_se;
  Integer peak_bytes;
  Number tokens_per_s, chunk_max_diff;
  std::string chunk_check;
  Integer distance, passage_tokens, trained_tokens;
  Number temperature;
  Integer generated_tokens;
  Number common_tokens_p50;
  Integer common_tokens_min, same_texts;
  Integer samples_per_prompt, samples_held_bytes, samples_shared_bytes;

  // The comparison with another cell.
  std::string versus;
  Number ratio_p50, ratio_ci_low, ratio_ci_high, ratio_confidence;
  Number cold_ratio_p50, cold_ratio_ci_low, cold_ratio_ci_high;
  std::string verdict;
  Integer repetitions, samples;
  Number steal_share, others_share;
  std::string noise;

  // By its name in the metrics table.
  Number& metric(std::string_view name) { return metrics[verify::metric_index(name)]; }
  const Number& metric(std::string_view name) const { return metrics[verify::metric_index(name)]; }

  // The baseline measured a second time.
  // Older tables say "null", which readers of CSV take for a missing value.
  bool is_aa_test() const { return verdict == kAaVerdict || verdict == "null"; }
  static constexpr const char* kAaVerdict = "aa_test";

  void fail(Status how, std::string why) {
    status = how;
    reason = std::move(why);
  }
};

const Schema<CellResult>& cell_schema();

}  // namespace kv::results
