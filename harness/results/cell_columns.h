// The columns of every experiment: the cell's identity, its status, its cache's bytes. Experiments name the small
// groups beside them if they write those.
#pragma once

#include <string>

#include "harness/results/row.h"

namespace kv::results {

inline constexpr TextColumn kCell{"cell", "", "key: experiment, workload, batch, length, variant"};
inline constexpr TextColumn kVariant{"variant", "",
                                     "canonical spec; in stream also recompute(…), which has no cache"};
inline constexpr auto kDevice =
    TextColumn{"device", "", "device that holds the cache: cpu or cuda; env.json names the GPU"}
        .one_of("cpu cuda")
        .axis("{}");
inline constexpr auto kLabel =
    TextColumn{"label", "", "the variant as charts, tables and terminals call it; empty: by its own name"}
        .stage();
inline constexpr auto kPlacement =
    TextColumn{"placement", "", "stage of the variant: location of rows"}.stage();
inline constexpr auto kCodec =
    TextColumn{"codec", "",
               "stage of the variant: stored bits; for another engine, kvlab's codec of the same bits"}
        .stage();
inline constexpr auto kRetention = TextColumn{"retention", "", "stage of the variant: kept tokens"}.stage();
inline constexpr auto kSelection =
    TextColumn{"selection", "", "stage of the variant: rows that a query reads"}.stage();
inline constexpr auto kLayerSpecs =
    TextColumn{"layer_specs", "", "layers with other stages, as 0-1:contiguous/f16"}.stage();
inline constexpr auto kOracle =
    TextColumn{"oracle", "", "why no engine can deploy the variant, so that no answer recommends it"}.stage();
inline constexpr auto kEngines =
    TextColumn{"engines", "",
               "commands that give serving engines this cache, ENGINE: COMMAND; empty: none can have it"}
        .stage();
inline constexpr auto kBitsPerValue =
    NumberColumn{"bits_per_value", "bits",
                 "stored bits of a K or V value, scales and zero points included; mean over the layers"}
        .stage()
        .called("bits");
inline constexpr auto kExperiment =
    TextColumn{"experiment", "", "name of the experiment in the config"}.axis("{}");
inline constexpr auto kPhase =
    TextColumn{"phase", "", "decode (one token a step) or prefill; times of the two are never mixed"}
        .one_of("decode prefill")
        .axis("{}");
inline constexpr auto kWorkload =
    TextColumn{"workload", "", "source of Q, K and V"}.axis("{}").swept_by("workload");
inline constexpr auto kLayers =
    IntegerColumn{"layers", "", "measured layers; bytes and times cover all of them together"}.axis(
        "{} layers");
inline constexpr IntegerColumn kModelLayers{
    "model_layers", "",
    "layers of the model, of any kind; more than `layers` where a run measures a part of it"};
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
                  "tokens of a sequence at the end of the last step; for a ragged batch, of the longest"}
        .axis("{} tokens", true)
        .swept_by("seq_len");
inline constexpr auto kStatus =
    Column<Status>{"status", "", "ok, failed, unsupported or out_of_memory"}.one_of(
        "ok failed unsupported out_of_memory");
inline constexpr TextColumn kReason{"reason", "", "reason that the status is not ok"};
inline constexpr TextColumn kKernel{"kernel", "", "instruction set and formats of the attention that ran"};
inline constexpr TextColumn kHost{"host", "", "name of the machine that measured the sweep point"};
inline constexpr TextColumn kSeries{"series", "",
                                    "the variant as the config writes it: the same at every {budget}"};
inline constexpr auto kCellColumns = column_list(
    kCell, kVariant, kDevice, kLabel, kPlacement, kCodec, kRetention, kSelection, kLayerSpecs, kOracle,
    kEngines, kBitsPerValue, kExperiment, kPhase, kWorkload, kLayers, kModelLayers, kQHeads, kKvHeads,
    kHeadDim, kThreads, kBatch, kSeqLen, kStatus, kReason, kKernel, kHost, kSeries);

inline constexpr IntegerColumn kBytesPayload{"bytes_payload", "bytes", "encoded K and V of kept tokens"};
inline constexpr IntegerColumn kBytesMetadata{"bytes_metadata", "bytes",
                                              "scales, zero points, block tables and scores, as allocated"};
inline constexpr IntegerColumn kBytesSlack{"bytes_slack", "bytes", "reserved for K and V but not in use"};
inline constexpr auto kBytesWorkspacePeak =
    IntegerColumn{
        "bytes_workspace_peak", "bytes",
        "largest scratch buffers at once during the steps: partial results, scores, decoded or sliced copies"}
        .called("workspace");
inline constexpr IntegerColumn kBytesCopied{
    "bytes_copied", "bytes",
    "decode: bytes moved by growth and slicing in `steps` steps; growth: in all steps"};
inline constexpr IntegerColumn kBytesPredicted{"bytes_predicted", "bytes",
                                               "closed form of payload + metadata + slack"};
inline constexpr IntegerColumn kModelBytes{
    "model_bytes", "bytes",
    "closed form of payload + metadata + slack of all model_layers; empty where all of them were measured"};
inline constexpr IntegerColumn kPeakBytes{"peak_bytes", "bytes",
                                          "most bytes in memory at once since the cache was empty, all kinds "
                                          "together: what growing holds twice and workspace included"};
inline constexpr IntegerColumn kBytesDevicePeak{
    "bytes_device_peak", "bytes", "peak of GPU memory held during the steps, all kinds; 0 on the CPU"};
inline constexpr IntegerColumn kRssPeakBytes{"rss_peak_bytes", "bytes",
                                             "peak of the process's resident memory so far"};
inline constexpr IntegerColumn kBytesDisk{"bytes_disk", "bytes",
                                          "K and V in files, scales and zero points included"};
inline constexpr IntegerColumn kBytesRead{
    "bytes_read", "bytes",
    "K, V, scales and zero points that one step's attention reads, and bytes that a selection reads to "
    "choose; payload + metadata are held"};
inline constexpr auto kHeldBytesPerToken =
    NumberColumn{"held_bytes_per_token", "bytes",
                 "payload + metadata + slack + disk over all tokens given, evicted ones included"}
        .called("bytes per token");
inline constexpr IntegerColumn kKeepsAll{
    "keeps_all", "",
    "1: the retention's budget is not below the sequence, so nothing was evicted; 0: tokens were evicted; "
    "empty: the retention keeps all by design"};
inline constexpr auto kByteColumns = column_list(
    kBytesPayload, kBytesMetadata, kBytesSlack, kBytesWorkspacePeak, kBytesCopied, kBytesPredicted,
    kModelBytes, kPeakBytes, kBytesDevicePeak, kRssPeakBytes, kBytesDisk, kBytesRead, kHeldBytesPerToken);

inline constexpr IntegerColumn kKeptTokens{
    "kept_tokens", "tokens", "tokens that a sequence keeps at the end, the mean over layers and KV heads"};
inline constexpr IntegerColumn kKeptTokensMin{"kept_tokens_min", "tokens",
                                              "kept_tokens of the layer and KV head that keeps the fewest"};
inline constexpr IntegerColumn kKeptTokensMax{"kept_tokens_max", "tokens",
                                              "kept_tokens of the layer and KV head that keeps the most"};
inline constexpr auto kKeepsAllColumns = column_list(kKeepsAll);

inline constexpr auto kKeptColumns = column_list(kKeptTokens, kKeptTokensMin, kKeptTokensMax);

inline constexpr auto kArm =
    TextColumn{"arm", "",
               "prefill: materialised, materialised_unmasked (no causal mask), materialised_chunked, chunked "
               "or tiled; models: chunked"}
        .one_of("materialised materialised_unmasked materialised_chunked chunked tiled")
        .axis("{}")
        .arm();
inline constexpr auto kChunkTokens =
    IntegerColumn{"chunk_tokens", "tokens",
                  "tokens of a chunk: one step, or the part of a prompt whose scores are in memory at once"}
        .axis("by {} tokens")
        .arm()
        .swept_by("chunk");
inline constexpr auto kArmColumns = column_list(kArm, kChunkTokens);

inline constexpr TextColumn kVersus{"versus", "",
                                    "baseline of times or losses: a variant, or in prefill an arm"};
inline constexpr auto kVerdict =
    TextColumn{"verdict", "",
               "times: baseline, faster, slower, ambiguous, unreliable (the baseline is noisy or differs "
               "from itself), or aa_test (the baseline against itself); losses: baseline, worse, better, "
               "negligible, ambiguous, identical, or untested (encoded_share or dropped_share is less than "
               "0.9 of its value at stated_context); answers to all questions: baseline, identical, worse, "
               "better, not_found_worse (a loss of more than 10 points is excluded), too_few_questions to "
               "say, or cannot_be_decided by any answers"}
        .one_of(
            "baseline aa_test faster slower ambiguous unreliable worse better negligible identical "
            "not_found_worse too_few_questions cannot_be_decided untested");
inline constexpr auto kVersusColumns = column_list(kVersus);

inline constexpr auto kVerdictColumns = column_list(kVersus, kVerdict);

inline constexpr IntegerColumn kBytesState{
    "bytes_state", "bytes", "part of bytes_payload that linear layers keep at any length: their states"};
inline constexpr auto kKOrder =
    TextColumn{
        "k_order", "",
        "order of K's channels in the cache, which matters to what stores channels in blocks: interleaved, "
        "rotary pairs side by side, as llama.cpp has Llama's; or halves, as transformers has them"}
        .one_of("interleaved halves")
        .axis("K's order: {}");
inline constexpr auto kModelCellColumns = column_list(kBytesState, kKOrder);

// Verdict of the baseline measured a second time; older tables say "null".
inline constexpr const char* kAaVerdict = "aa_test";
// The verdict where the baseline's own times allow none.
inline constexpr const char* kUnreliable = "unreliable";
inline constexpr const char* kUntestedVerdict = "untested";
inline bool is_aa_test(const Row& cell) { return cell[kVerdict] == kAaVerdict || cell[kVerdict] == "null"; }

inline void fail(Row& cell, Status how, std::string why) {
  cell[kStatus] = how;
  cell[kReason] = std::move(why);
}

// The name of the cell's cache in sentences and tables.
inline const std::string& label_of(const Row& cell) {
  return cell[kLabel].empty() ? cell[kVariant] : cell[kLabel];
}

// The beginning of a side table's row: its cell's identity.
inline Row row_of(const Row& cell) {
  Row row;
  row.copy(cell, {&kCell, &kVariant, &kBatch, &kSeqLen});
  return row;
}

}  // namespace kv::results
