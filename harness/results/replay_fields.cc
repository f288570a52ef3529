#include "harness/results/replay_fields.h"

#include "harness/results/cell_result.h"

namespace kv::results {
namespace {

using R = CellResult;
using Columns = std::vector<Field<R>>;

Columns requests_fields() {
  return {
      {"arrivals", "", &R::arrivals,
       "when requests come: trace, its own times; or drawn: poisson(requests a second), gamma(requests a "
       "second, "
       "standard deviation of a gap / its mean)"},
      {"machine", "", &R::machine, "memory of the machine, as the config has it"},
      {"weights_held_bytes", "bytes", &R::weights_held_bytes, "of that"},
      {"room_bytes", "bytes", &R::room_bytes, "what is left for caches"},
      {"step_tokens", "tokens", &R::step_tokens,
       "of a step at most: one of each that decodes, the rest prompts"},
      one_of<R>({"preempt", "", &R::preempt, "what becomes of the rows of a sequence that gives up its room"},
                {"recompute", "swap"}),
      {"requests", "", &R::requests, "that came"},
      {"trace_s", "s", &R::trace_s, "from the first request to the last"},
      {"prompt_p50_tokens", "tokens", &R::prompt_p50_tokens, "of the requests, served or not"},
      {"prompt_p99_tokens", "tokens", &R::prompt_p99_tokens, "likewise"},
      {"output_p50_tokens", "tokens", &R::output_p50_tokens, "of the requests' answers"},
      {"output_p99_tokens", "tokens", &R::output_p99_tokens, "likewise"},
      {"distinct_share", "1", &R::distinct_share,
       "prompt blocks that no earlier request had / all, where they have ids"},
      one_of<R>(
          {"clusters", "", &R::clusters,
           "what intervals draw again as a whole: sessions; minutes of arrival where the trace has none"},
          {"sessions", "minutes"}),
      {"cluster_count", "", &R::cluster_count, "of these; fewer than 5 give no interval"},
  };
}

Columns counted_fields() {
  return {
      {"refused", "", &R::refused, "requests longer than the context, or than the memory alone"},
      {"running_p50", "", &R::running_p50, "sequences that ran at once, median over the time of all steps"},
      {"running_p99", "", &R::running_p99, "the 99th percentile"},
      {"running_peak", "", &R::running_peak, "and the most"},
      {"waiting_p50", "", &R::waiting_p50, "requests that waited, likewise"},
      {"waiting_p99", "", &R::waiting_p99, "the 99th percentile"},
      {"waiting_peak", "", &R::waiting_peak, "and the most"},
      {"pool_blocks", "", &R::pool_blocks, "of paged groups, all layers"},
      {"held_peak_bytes", "bytes", &R::held_peak_bytes,
       "of sequences: rows, what is reserved for them, tables and buffers; free blocks left out"},
      {"payload_mean_bytes", "bytes", &R::payload_mean_bytes,
       "rows that are filled, mean over the time of all steps"},
      {"slack_mean_bytes", "bytes", &R::slack_mean_bytes, "reserved for sequences and not filled, likewise"},
      {"other_mean_bytes", "bytes", &R::other_mean_bytes,
       "block tables, scores, codecs' raw rows, states, likewise"},
      {"cached_mean_bytes", "bytes", &R::cached_mean_bytes,
       "blocks of prefixes that no sequence used, likewise"},
      {"fragmentation_share", "1", &R::fragmentation_share,
       "internal fragmentation: slack_mean_bytes / (slack_mean_bytes + payload_mean_bytes)"},
      {"preemptions", "", &R::preemptions, "how often a sequence gave up its room"},
      {"preemptions_per_1000", "", &R::preemptions_per_1000, "requests"},
      {"recomputed_tokens", "tokens", &R::recomputed_tokens, "rows dropped and computed again"},
      {"swapped_tokens", "tokens", &R::swapped_tokens, "rows moved over the link, and back"},
      {"hit_rate", "1", &R::hit_rate,
       "tokens of prompts that the replay's own prefix cache had / all; empty without one"},
      {"hit_rate_curve", "1", &R::hit_rate_curve,
       "blocks found by a prefix cache of room_bytes, least recently used, one request after another"},
      {"hit_rate_at_any", "1", &R::hit_rate_at_any, "by one without limit"},
      one_of<R>({"counts_from", "", &R::counts_from,
                 "computed: counted by the caches' own allocators, without rows"},
                {"computed"}),
  };
}

Columns clock_fields() {
  return {
      one_of<R>({"times_from", "", &R::times_from,
                 "measured: cells of this machine; computed: beyond these; assumed: the roofline of a stated "
                 "machine"},
                {"measured", "computed", "assumed"}),
      {"clock_residual", "1", &R::clock_residual,
       "largest of |measured / fitted - 1| over the cells of the clock"},
      {"clock_beyond_share", "1", &R::clock_beyond_share,
       "of the time of all steps, in those beyond these cells"},
      {"clock_assumed_share", "1", &R::clock_assumed_share, "likewise, by the rates of a stated machine"},
      {"served_s", "s", &R::served_s, "until the last answer"},
      {"served_tokens_per_s", "tokens/s", &R::served_tokens_per_s, "generated / served_s"},
      {"wait_p99_s", "s", &R::wait_p99_s, "from arrival to admission"},
      {"wait_p99_s_ci_low", "s", &R::wait_p99_s_ci_low, "95 % interval (bootstrap over clusters)"},
      {"wait_p99_s_ci_high", "s", &R::wait_p99_s_ci_high, "its upper end"},
      {"ttft_p50_s", "s", &R::ttft_p50_s, "from arrival to the first token, median of the requests"},
      {"ttft_p50_s_ci_low", "s", &R::ttft_p50_s_ci_low, "95 % interval (bootstrap over clusters)"},
      {"ttft_p50_s_ci_high", "s", &R::ttft_p50_s_ci_high, "its upper end"},
      {"ttft_p99_s", "s", &R::ttft_p99_s, "the 99th percentile"},
      {"ttft_p99_s_ci_low", "s", &R::ttft_p99_s_ci_low, "95 % interval (bootstrap over clusters)"},
      {"ttft_p99_s_ci_high", "s", &R::ttft_p99_s_ci_high, "its upper end"},
      {"tpot_p50_ms", "ms", &R::tpot_p50_ms, "each further token, mean of a request; median of the requests"},
      {"tpot_p50_ms_ci_low", "ms", &R::tpot_p50_ms_ci_low, "95 % interval (bootstrap over clusters)"},
      {"tpot_p50_ms_ci_high", "ms", &R::tpot_p50_ms_ci_high, "its upper end"},
      {"tpot_p99_ms", "ms", &R::tpot_p99_ms, "the 99th percentile"},
      {"tpot_p99_ms_ci_low", "ms", &R::tpot_p99_ms_ci_low, "95 % interval (bootstrap over clusters)"},
      {"tpot_p99_ms_ci_high", "ms", &R::tpot_p99_ms_ci_high, "its upper end"},
      {"limit_ttft_s", "s", &R::limit_ttft_s, "a request is good whose first token comes within it"},
      {"limit_tpot_ms", "ms", &R::limit_tpot_ms, "and whose further ones come within this, in the mean"},
      {"good_share", "1", &R::good_share, "good requests / all, refused ones too"},
      {"good_share_ci_low", "1", &R::good_share_ci_low, "95 % interval (bootstrap over clusters)"},
      {"good_share_ci_high", "1", &R::good_share_ci_high, "its upper end"},
      {"goodput_per_s", "1/s", &R::goodput_per_s, "good requests / served_s"},
      {"goodput_per_s_ci_low", "1/s", &R::goodput_per_s_ci_low, "good_share's interval at the same rate"},
      {"goodput_per_s_ci_high", "1/s", &R::goodput_per_s_ci_high, "its upper end"},
  };
}

}  // namespace

Columns replay_fields() {
  Columns all;
  for (const Columns& part : {requests_fields(), counted_fields(), clock_fields()})
    all.insert(all.end(), part.begin(), part.end());
  return written_by<R>("replay", std::move(all));
}

}  // namespace kv::results
