// The columns of step and prompt times, their comparison with a baseline, other engines and a roofline, and disturbances.
#pragma once

#include "harness/results/cell_columns.h"
#include "harness/results/column.h"
#include "harness/results/estimate.h"
#include "harness/results/table.h"

namespace kv::measure {

inline constexpr results::NumberColumn kAppendP50Us{"append_p50_us", "us",
                                                    "storing one token a sequence; p50 is a median"};
inline constexpr results::NumberColumn kViewP50Us{
    "view_p50_us", "us", "making the kept rows readable; copies only in read=copy variants"};
inline constexpr results::NumberColumn kAttendP50Us{"attend_p50_us", "us", "attention over the kept rows"};
inline constexpr auto kStepP50Us =
    results::estimate<"step_p50_us", "step_ci_*_us">(
        "us", "append + view + attend; for a whole model also its projections and the rest",
        "95 % interval (over repetitions; results/README.md has the formula)")
        .called("step, p50");
inline constexpr results::NumberColumn kStepP90Us{"step_p90_us", "us", "90th percentile of all steps"};
inline constexpr results::NumberColumn kStepP99Us{"step_p99_us", "us", "99th percentile of all steps"};
inline constexpr results::NumberColumn kStepMaxUs{"step_max_us", "us", "slowest step"};
inline constexpr results::NumberColumn kReadGbps{
    "read_gbps", "GB/s",
    "stored bytes of K, V, scales and zero points that one attend reads / attend_p50_us; empty with device = "
    "cuda, which times attend_p50_us on the host"};
inline constexpr auto kStepColumns =
    results::column_list(kAppendP50Us, kViewP50Us, kAttendP50Us, kStepP50Us.value(), kStepP90Us, kStepP99Us,
                         kStepMaxUs, kStepP50Us.low, kStepP50Us.high, kReadGbps);

inline constexpr auto kColdAttendP50Us =
    results::estimate<"cold_attend_p50_us", "cold_ci_*_us">(
        "us", "attention rotating over enough caches to leave the last-level cache")
        .called("attention, cold");
inline constexpr auto kColdColumns = results::column_list(kColdAttendP50Us);

inline constexpr auto kGpuP50Us = results::estimate<"gpu_p50_us", "gpu_ci_*_us">(
    "us",
    "attention on cold rows by GPU events around its launches, all queued before the first begins; replaces "
    "cold_attend_p50_us with device = cuda");
inline constexpr results::IntegerColumn kGpuSmMhzLeast{
    "gpu_sm_mhz_least", "MHz",
    "GPU clock beside these times, counted by a kernel, in the slowest repetition"};
inline constexpr results::IntegerColumn kGpuSmMhzMost{
    "gpu_sm_mhz_most", "MHz", "GPU clock beside these times, counted by a kernel, in the fastest repetition"};
inline constexpr auto kGpuColumns = results::column_list(kGpuP50Us, kGpuSmMhzLeast, kGpuSmMhzMost);

inline constexpr auto kPrefillP50Us =
    results::estimate<"prefill_p50_us", "prefill_ci_*_us">(
        "us",
        "storing and attending the whole prompt, all layers and sequences; model: reading it, up to the "
        "first token's logits",
        "95 % interval (over repetitions; results/README.md has the formula)")
        .called("prompt, p50");
inline constexpr auto kPrefillTokensPerS =
    results::NumberColumn{"prefill_tokens_per_s", "tokens/s", "tokens of all sequences / prefill_p50_us"}
        .called("prompt tokens/s");
inline constexpr auto kPromptColumns = results::column_list(kPrefillP50Us, kPrefillTokensPerS);

inline constexpr auto kRatioP50 =
    results::estimate<"ratio_p50", "ratio_ci_*">(
        "1", "median step / median step of `versus`, over the interleaved repetitions",
        "interval, so wide that all verdicts of the sweep point are right together with 95 % (Holm)")
        .called("time / baseline");
inline constexpr results::NumberColumn kRatioConfidence{
    "ratio_confidence", "1",
    "confidence of the interval of ratio_p50 alone: 0.95 for one comparison, else more"};
inline constexpr auto kRatioColumns = results::column_list(kRatioP50, kRatioConfidence);

inline constexpr auto kColdRatioP50 =
    results::estimate<"cold_ratio_p50", "cold_ratio_ci_*">(
        "1",
        "median of cold_attend_p50_us or gpu_p50_us / that of `versus`, over the interleaved repetitions",
        "interval, with the confidence of ratio_p50's")
        .called("cold / baseline");
inline constexpr auto kColdRatioColumns = results::column_list(kColdRatioP50);

inline constexpr results::IntegerColumn kRepetitions{"repetitions", "", "number of interleaved repetitions"};
inline constexpr results::IntegerColumn kSampleCount{"samples", "",
                                                     "number of timed steps in all repetitions"};
inline constexpr auto kRepetitionColumns = results::column_list(kRepetitions, kSampleCount);

inline constexpr results::NumberColumn kStealShare{
    "steal_share", "1", "share of the processors' time that the hypervisor gave to other machines meanwhile"};
inline constexpr results::NumberColumn kOthersShare{
    "others_share", "1", "share of the processors' time that other processes took meanwhile"};
inline constexpr results::NumberColumn kDisturbedShare{
    "disturbed_share", "1",
    "timed runs during which threads waited for a processor for more than 2 % of the time / all that count"};
inline constexpr results::IntegerColumn kDiscardedRepetitions{
    "discarded_repetitions", "",
    "repetitions taken again because others held up over 10 % of their runs; after four, over 50 %"};
inline constexpr results::TextColumn kNoise{"noise", "", "disturbance of these times; empty for quiet ones"};
inline constexpr auto kNoiseColumns =
    results::column_list(kStealShare, kOthersShare, kDisturbedShare, kDiscardedRepetitions, kNoise);

// A whole model's step, beside its attention.
inline constexpr results::NumberColumn kProjectionsP50Us{"projections_p50_us", "us",
                                                         "products with weights, the classifier's included"};
inline constexpr results::NumberColumn kStateP50Us{
    "state_p50_us", "us", "linear layers' recurrence, which updates and reads their states"};
inline constexpr results::NumberColumn kRestP50Us{"rest_p50_us", "us",
                                                  "part of a step outside projections and cache"};

// Steps that verify drafts at once and truncate refused ones, beside steps of one token.
inline constexpr results::IntegerColumn kDraftTokens{
    "draft_tokens", "tokens", "drafts that a step verifies at once beside its own token"};
inline constexpr results::NumberColumn kDraftAccept{
    "draft_accept", "1", "probability that a draft is accepted if all before it were"};
inline constexpr results::NumberColumn kDraftStaysMean{
    "draft_stays_mean", "tokens",
    "tokens that a draft step keeps after truncation: its own and the accepted drafts, mean"};
inline constexpr auto kDraftStepP50Us = results::estimate<"draft_step_p50_us", "draft_step_ci_*_us">(
    "us", "append and attention of draft_tokens + 1 tokens per sequence, and the truncation");
inline constexpr auto kDraftRatioP50 = results::estimate<"draft_ratio_p50", "draft_ratio_ci_*">(
    "1",
    "time of a kept token, draft_step_p50_us / draft_stays_mean, over step_p50_us; the proposal of drafts is "
    "excluded");
inline constexpr results::TextColumn kDraftRefused{
    "draft_refused", "", "reason that the cache cannot be truncated to the accepted drafts"};
inline constexpr auto kDraftColumns = results::column_list(kDraftTokens, kDraftAccept, kDraftStaysMean,
                                                           kDraftStepP50Us, kDraftRatioP50, kDraftRefused);

inline constexpr results::IntegerColumn kRepetition{"repetition", "", "number of the repetition, from 0"};
inline constexpr results::IntegerColumn kSample{"sample", "",
                                                "number of the sample in its repetition, from 0"};
inline constexpr auto kKind =
    results::TextColumn{"kind", "",
                        "step, prefill, cold (attention alone over rotating caches), draft (a step that "
                        "verifies drafts), or a checkpoint run's operation"}
        .one_of("step prefill cold draft save load freeze unfreeze fork compact");
inline constexpr results::NumberColumn kAppendUs{"append_us", "us", "storing one token a sequence"};
inline constexpr results::NumberColumn kViewUs{"view_us", "us", "making the kept rows readable"};
inline constexpr results::NumberColumn kAttendUs{
    "attend_us", "us", "attention over the kept rows; empty if the run measures the cache update alone"};
inline constexpr results::NumberColumn kStepUs{
    "step_us", "us", "append + view + attend + projections + state + rest, or the operation"};
inline constexpr results::NumberColumn kProjectionsUs{"projections_us", "us", "products with weights"};
inline constexpr results::NumberColumn kStateUs{"state_us", "us", "linear layers' recurrence"};
inline constexpr results::NumberColumn kRestUs{"rest_us", "us", "the rest of a whole model's step"};
inline constexpr results::NumberColumn kGpuUs{"gpu_us", "us", "attention by the GPU's own clock"};

inline const results::Table kSamples{
    "samples.csv",
    {&results::kCell, &results::kVariant, &results::kSeqLen, &results::kBatch, &kRepetition, &kSample, &kKind,
     &kAppendUs, &kViewUs, &kAttendUs, &kStepUs, &kProjectionsUs, &kStateUs, &kRestUs, &kGpuUs,
     &results::kHost}};

// Other engines' attention, compared with kvlab's variant of the same codec.
inline constexpr results::TextColumn kPeer{
    "peer", "", "name of the other engine, if the cell is another engine's; variant then has its format"};
inline constexpr results::TextColumn kPeerVersion{"peer_version", "", "version of the engine"};
inline constexpr results::TextColumn kPeerSettings{"peer_settings", "", "settings of the engine"};
inline constexpr results::NumberColumn kPeerTolerance{
    "peer_tolerance", "1",
    "largest err_kernel_rel_l2 of a cell that has not failed, stated by the peer's file"};
inline constexpr results::IntegerColumn kPeerBytesReported{
    "peer_bytes_reported", "bytes", "size of the engine's cache, as the engine reports it"};
inline constexpr results::IntegerColumn kPeerBytesResident{
    "peer_bytes_resident", "bytes",
    "resident memory added to the engine's process by making and filling the cache"};
inline constexpr results::TextColumn kPeerVersus{
    "peer_versus", "", "kvlab's variant of the same bits, the baseline of peer_ratio_p50"};
inline constexpr auto kPeerRatioP50 = results::estimate<"peer_ratio_p50", "peer_ratio_ci_*">(
    "1", "step_p50_us / step_p50_us of peer_versus",
    "95 % interval (over repetitions; results/README.md has the formula)");
inline constexpr auto kPeerColdRatioP50 = results::estimate<"peer_cold_ratio_p50", "peer_cold_ratio_ci_*">(
    "1", "cold_attend_p50_us / cold_attend_p50_us of peer_versus");
inline constexpr auto kPeerColumns =
    results::column_list(kPeer, kPeerVersion, kPeerSettings, kPeerTolerance, kPeerBytesReported,
                         kPeerBytesResident, kPeerVersus, kPeerRatioP50, kPeerColdRatioP50);

inline constexpr results::NumberColumn kCeilingGbps{
    "ceiling_gbps", "GB/s",
    "measured read bandwidth: reading the same rows, repeatedly, and nothing else, the fastest of several "
    "orders (for rows copied before each read or in files: the same number of other bytes)"};
inline constexpr results::NumberColumn kCeilingShare{
    "ceiling_share", "1", "share of measured read bandwidth: read_gbps / ceiling_gbps"};
inline constexpr results::IntegerColumn kMultiplyAdds{
    "multiply_adds", "",
    "multiply-adds of one attend: 2 * head_dim for each query head and row that it keeps"};
inline constexpr results::NumberColumn kMultiplyAddPeakPerS{
    "multiply_add_peak_per_s", "1/s",
    "measured peak, in registers, of the kernel's multiply-add instructions"};
inline constexpr results::NumberColumn kMultiplyAddPeakSpread{
    "multiply_add_peak_spread", "1",
    "fastest over slowest repetition of the multiply-add peak: above 1 if the clock changed or another "
    "tenant used the core"};
inline constexpr auto kBound =
    results::TextColumn{"bound", "",
                        "side of the roofline that takes longer: memory (bytes read at ceiling_gbps) or "
                        "compute (multiply_adds at their peak)"}
        .one_of("memory compute");
inline constexpr results::NumberColumn kBoundUs{"bound_us", "us", "roofline of one attend: its least time"};
inline constexpr results::NumberColumn kBoundShare{"bound_share", "1",
                                                   "share of the roofline: bound_us / attend_p50_us"};
inline constexpr auto kRooflineColumns =
    results::column_list(kCeilingGbps, kCeilingShare, kMultiplyAdds, kMultiplyAddPeakPerS,
                         kMultiplyAddPeakSpread, kBound, kBoundUs, kBoundShare);

inline constexpr results::NumberColumn kColdReadGbps{
    "cold_read_gbps", "GB/s",
    "cold read rate: the bytes of read_gbps / cold_attend_p50_us, or with device = cuda / gpu_p50_us"};
inline constexpr results::NumberColumn kColdCeilingGbps{
    "cold_ceiling_gbps", "GB/s",
    "measured read bandwidth over more than twice the last-level cache; on a GPU over 16 times its L2, the "
    "best of several shapes"};
inline constexpr results::NumberColumn kColdCeilingShare{"cold_ceiling_share", "1",
                                                         "cold_read_gbps / cold_ceiling_gbps"};
inline constexpr auto kColdBound =
    results::TextColumn{"cold_bound", "",
                        "side of the roofline that takes longer for cold_attend_p50_us, at "
                        "cold_ceiling_gbps: memory or compute"}
        .one_of("memory compute");
inline constexpr results::NumberColumn kColdBoundUs{"cold_bound_us", "us",
                                                    "roofline of one attend on cold rows: its least time"};
inline constexpr results::NumberColumn kColdBoundShare{"cold_bound_share", "1",
                                                       "cold_bound_us / cold_attend_p50_us"};
inline constexpr auto kColdRooflineColumns = results::column_list(
    kColdReadGbps, kColdCeilingGbps, kColdCeilingShare, kColdBound, kColdBoundUs, kColdBoundShare);

}  // namespace kv::measure
