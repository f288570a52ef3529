// The columns of every experiment: the cell's identity, its status, its cache's bytes. Experiments name the small
// groups beside them if they write those.
#pragma once

#include <string>

#include "harness/results/row.h"

namespace kv::results {

inline constexpr TextColumn kCell{"cell", "", "key: experiment, workload, batch, length, variant"};
inline constexpr TextColumn kVariant{"variant", "",
                                     "canonical spec; of stream also recompute(…), which has no cache"};
inline constexpr auto kDevice =
    TextColumn{"device", "", "cpu or cuda: where the cache lives; which GPU, env.json says"}
        .one_of("cpu cuda")
        .axis("{}");
inline constexpr auto kPlacement =
    TextColumn{"placement", "", "stage of the variant: where rows live"}.stage();
inline constexpr auto kCodec =
    TextColumn{"codec", "", "stage of the variant: which bits are stored; of another engine, the same bits"}
        .stage();
inline constexpr auto kRetention =
    TextColumn{"retention", "", "stage of the variant: which tokens are kept"}.stage();
inline constexpr auto kSelection =
    TextColumn{"selection", "", "stage of the variant: which rows a query reads"}.stage();
inline constexpr auto kLayerSpecs =
    TextColumn{"layer_specs", "", "layers with other stages, as 0-1:contiguous/f16"}.stage();
inline constexpr auto kBitsPerValue =
    NumberColumn{"bits_per_value", "bits",
                 "stored for a K or V value, scales and zero points included; the mean where layers differ"}
        .stage();
inline constexpr auto kExperiment = TextColumn{"experiment", "", "as in the config"}.axis("{}");
inline constexpr auto kPhase =
    TextColumn{"phase", "", "decode (one token a step) or prefill; times of the two are never mixed"}
        .one_of("decode prefill")
        .axis("{}");
inline constexpr auto kWorkload =
    TextColumn{"workload", "", "where Q, K and V come from"}.axis("{}").swept_by("workload");
inline constexpr auto kLayers =
    IntegerColumn{"layers", "", "measured layers; bytes and times are of all of them together"}.axis(
        "{} layers");
inline constexpr auto kQHeads = IntegerColumn{"q_heads", "", "query heads of a layer"}.axis("{} query heads");
inline constexpr auto kKvHeads =
    IntegerColumn{"kv_heads", "", "K and V heads of a layer"}.axis("{} KV heads").swept_by("kv_heads");
inline constexpr auto kHeadDim =
    IntegerColumn{"head_dim", "", "values of a head's row"}.axis("head dim {}").swept_by("head_dim");
inline constexpr auto kThreads =
    IntegerColumn{"threads", "", "threads of the run"}.axis("{} threads").swept_by("threads");
inline constexpr auto kBatch =
    IntegerColumn{"batch", "", "sequences of a step"}.axis("batch {}").swept_by("batch");
inline constexpr auto kSeqLen =
    IntegerColumn{"seq_len", "tokens",
                  "of a sequence at the end of the last step; of a ragged batch, of the longest"}
        .axis("{} tokens", true)
        .swept_by("seq_len");
inline constexpr auto kStatus =
    Column<Status>{"status", "", "ok, failed, unsupported or out_of_memory"}.one_of(
        "ok failed unsupported out_of_memory");
inline constexpr TextColumn kReason{"reason", "", "why the status is not ok"};
inline constexpr TextColumn kKernel{"kernel", "", "instruction set and formats of the attention that ran"};
inline constexpr TextColumn kHost{"host", "", "name of the machine that measured the sweep point"};
inline constexpr TextColumn kSeries{"series", "",
                                    "the variant as the config has it: the same at every {budget}"};
inline constexpr auto kCellColumns =
    column_list(kCell, kVariant, kDevice, kPlacement, kCodec, kRetention, kSelection, kLayerSpecs,
                kBitsPerValue, kExperiment, kPhase, kWorkload, kLayers, kQHeads, kKvHeads, kHeadDim, kThreads,
                kBatch, kSeqLen, kStatus, kReason, kKernel, kHost, kSeries);

inline constexpr IntegerColumn kBytesPayload{"bytes_payload", "bytes", "encoded K and V of kept tokens"};
inline constexpr IntegerColumn kBytesMetadata{"bytes_metadata", "bytes",
                                              "scales, zero points, block tables and scores, as allocated"};
inline constexpr IntegerColumn kBytesSlack{"bytes_slack", "bytes", "reserved for K and V but not in use"};
inline constexpr IntegerColumn kBytesWorkspacePeak{
    "bytes_workspace_peak", "bytes",
    "largest scratch buffers at once during the steps: partial results, scores, decoded or "
    "sliced copies"};
inline constexpr IntegerColumn kBytesCopied{
    "bytes_copied", "bytes", "decode: moved by growth and slicing in `steps` steps; growth: in all steps"};
inline constexpr IntegerColumn kBytesPredicted{"bytes_predicted", "bytes",
                                               "closed form of payload + metadata + slack"};
inline constexpr IntegerColumn kBytesDevicePeak{
    "bytes_device_peak", "bytes", "most GPU memory held during the steps, of all kinds; 0 on the CPU"};
inline constexpr IntegerColumn kRssPeakBytes{"rss_peak_bytes", "bytes",
                                             "resident memory of the process, its peak so far"};
inline constexpr IntegerColumn kBytesDisk{"bytes_disk", "bytes",
                                          "K and V in files, scales and zero points included"};
inline constexpr IntegerColumn kBytesRead{
    "bytes_read", "bytes",
    "K, V, scales and zero points that one step's attention reads, and what a selection "
    "reads to choose; what is held is payload + metadata"};
inline constexpr NumberColumn kHeldBytesPerToken{
    "held_bytes_per_token", "bytes",
    "payload + metadata + slack + disk over all tokens given, evicted ones included"};
inline constexpr IntegerColumn kKeepsAll{
    "keeps_all", "",
    "1: the retention's budget is not below the sequence, so nothing was evicted and its "
    "policy did nothing; 0: tokens were evicted; empty: the retention keeps all by design"};
inline constexpr auto kByteColumns =
    column_list(kBytesPayload, kBytesMetadata, kBytesSlack, kBytesWorkspacePeak, kBytesCopied,
                kBytesPredicted, kBytesDevicePeak, kRssPeakBytes, kBytesDisk, kBytesRead, kHeldBytesPerToken);

inline constexpr IntegerColumn kKeptTokens{"kept_tokens", "tokens",
                                           "of a sequence, a layer and a head at the end"};
inline constexpr auto kKeepsAllColumns = column_list(kKeepsAll);

inline constexpr auto kKeptColumns = column_list(kKeptTokens);

inline constexpr auto kArm =
    TextColumn{"arm", "",
               "prefill: materialised, materialised_unmasked (no causal mask), materialised_chunked, "
               "chunked or tiled; of models: chunked"}
        .one_of("materialised materialised_unmasked materialised_chunked chunked tiled");
inline constexpr auto kChunkTokens =
    IntegerColumn{"chunk_tokens", "tokens", "of a chunk: a step, or whose scores are in memory at once"}
        .axis("chunks of {} tokens", true)
        .swept_by("chunk");
inline constexpr auto kArmColumns = column_list(kArm, kChunkTokens);

inline constexpr TextColumn kVersus{
    "versus", "", "the variant, or for prefill the arm, that times or losses are compared with"};
inline constexpr auto kVerdict =
    TextColumn{"verdict", "",
               "of times: baseline, faster, slower, ambiguous, or aa_test, the baseline against itself; "
               "of losses: baseline, worse, better, negligible, ambiguous, or identical"}
        .one_of("baseline aa_test faster slower ambiguous worse better negligible identical");
inline constexpr auto kVersusColumns = column_list(kVersus);

inline constexpr auto kVerdictColumns = column_list(kVersus, kVerdict);

inline constexpr IntegerColumn kBytesState{
    "bytes_state", "bytes", "of bytes_payload, what linear layers keep whatever the length: their states"};
inline constexpr auto kStateBytesColumns = column_list(kBytesState);

// Verdict of the baseline measured a second time; older tables say "null".
inline constexpr const char* kAaVerdict = "aa_test";
inline bool is_aa_test(const Row& cell) { return cell[kVerdict] == kAaVerdict || cell[kVerdict] == "null"; }

inline void fail(Row& cell, Status how, std::string why) {
  cell[kStatus] = how;
  cell[kReason] = std::move(why);
}

// The beginning of a side table's row: its cell's identity.
Row row_of(const Row& cell);

}  // namespace kv::results
