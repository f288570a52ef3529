// The columns of replays: requests through caches' own allocators on a simulated clock. Bytes, blocks and counts are
// computed; of times, times_from says what they are.
#pragma once

#include <string>
#include <vector>

#include "harness/results/schema.h"

namespace kv::results {

struct ReplayResult {
  std::string arrivals, machine, preempt;
  Integer weights_held_bytes, room_bytes, step_tokens;
  // The requests themselves.
  Integer requests;
  Number trace_s;
  Integer prompt_p50_tokens, prompt_p99_tokens, output_p50_tokens, output_p99_tokens;
  Number distinct_share;
  std::string clusters;
  Integer cluster_count;
  // What was counted.
  Integer refused, running_p50, running_p99, running_peak, waiting_p50, waiting_p99, waiting_peak;
  Integer pool_blocks, held_peak_bytes;
  Number payload_mean_bytes, slack_mean_bytes, other_mean_bytes, cached_mean_bytes, fragmentation_share;
  Integer preemptions, recomputed_tokens, swapped_tokens;
  Number preemptions_per_1000;
  Number hit_rate, hit_rate_curve, hit_rate_at_any;
  // What follows from the clock.
  std::string counts_from, times_from;
  Number clock_residual, clock_beyond_share, clock_assumed_share;
  Number served_s, served_tokens_per_s;
  Number wait_p99_s, wait_p99_s_ci_low, wait_p99_s_ci_high;
  Number ttft_p50_s, ttft_p50_s_ci_low, ttft_p50_s_ci_high;
  Number ttft_p99_s, ttft_p99_s_ci_low, ttft_p99_s_ci_high;
  Number tpot_p50_ms, tpot_p50_ms_ci_low, tpot_p50_ms_ci_high;
  Number tpot_p99_ms, tpot_p99_ms_ci_low, tpot_p99_ms_ci_high;
  Number limit_ttft_s, limit_tpot_ms;
  Number good_share, good_share_ci_low, good_share_ci_high;
  Number goodput_per_s, goodput_per_s_ci_low, goodput_per_s_ci_high;
};

struct CellResult;
std::vector<Field<CellResult>> replay_fields();

}  // namespace kv::results
