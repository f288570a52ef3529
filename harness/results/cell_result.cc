// The schema of cells.csv, in the order of its columns.
#include "harness/results/cell_result.h"

#include "harness/results/draft_fields.h"
#include "harness/results/error_fields.h"
#include "harness/results/gpu_fields.h"
#include "harness/results/peer_fields.h"
#include "harness/results/prediction_fields.h"
#include "harness/results/selection_fields.h"
#include "harness/results/tier_fields.h"

namespace kv::results {
namespace {

using C = CellResult;
using Fields = std::vector<Field<CellResult>>;

// Experiments as results/README.md has them.
constexpr std::string_view kAll =
    "decode growth prefill batch budget checkpoint quality recall generate stream model replay eval";
constexpr std::string_view kSteps = "decode growth batch model";
constexpr std::string_view kTimed = "decode growth prefill batch model";
constexpr std::string_view kReadings = "quality recall stream";
constexpr std::string_view kCompared = "decode growth prefill batch quality recall stream model";
constexpr std::string_view kOutputs = "decode growth prefill batch budget checkpoint model eval";
constexpr std::string_view kJudged = "decode growth budget checkpoint model";

Field<C> by(std::string_view experiments, Field<C> field) {
  field.experiments = experiments;
  return field;
}

Fields identity() {
  return written_by<C>(
      kAll,
      {
          {"cell", "", &C::cell, "key: experiment, workload, batch, length, variant"},
          {"variant", "", &C::variant, "canonical spec; of stream also recompute(…), which has no cache"},
          one_of<C>(
              {"device", "", &C::device, "cpu or cuda: where the cache lives; which GPU, env.json says"},
              {"cpu", "cuda"}),
          {"placement", "", &C::placement, "stage of the variant: where rows live", StageColumn{}},
          {"codec", "", &C::codec,
           "stage of the variant: which bits are stored; of another engine, the same bits", StageColumn{}},
          {"retention", "", &C::retention, "stage of the variant: which tokens are kept", StageColumn{}},
          {"selection", "", &C::selection, "stage of the variant: which rows a query reads", StageColumn{}},
          {"layer_specs", "", &C::layer_specs, "layers with other stages, as 0-1:contiguous/f16",
           StageColumn{}},
          {"bits_per_value", "bits", &C::bits_per_value,
           "stored for a K or V value, scales and zero points included; the mean where layers differ",
           StageColumn{}},
          {"threads", "", &C::threads, "threads of the run"},
          {"experiment", "", &C::experiment, "as in the config"},
          one_of<C>({"phase", "", &C::phase,
                     "decode (one token a step) or prefill; times of the two are never mixed"},
                    {"decode", "prefill"}),
          {"workload", "", &C::workload, "where Q, K and V come from"},
          {"layers", "", &C::layers, "measured layers; bytes and times are of all of them together"},
          {"q_heads", "", &C::q_heads, "query heads of a layer"},
          {"kv_heads", "", &C::kv_heads, "K and V heads of a layer"},
          {"head_dim", "", &C::head_dim, "values of a head's row"},
          {"batch", "", &C::batch, "sequences of a step"},
          {"seq_len", "tokens", &C::seq_len,
           "of a sequence at the end of the last step; of a ragged batch, of the longest"},
          by("batch", {"lengths", "", &C::lengths, "batch: what the lengths were drawn from"}),
          by("prefill quality recall stream",
             one_of<C>(
                 {"arm", "", &C::arm,
                  "prefill: materialised, materialised_unmasked (no causal mask), "
                  "materialised_chunked, chunked or "
                  "tiled; of models: chunked"},
                 {"materialised", "materialised_unmasked", "materialised_chunked", "chunked", "tiled"})),
          by("prefill quality recall stream", {"chunk_tokens", "tokens", &C::chunk_tokens,
                                               "of a chunk: a step, or whose scores are in memory at once"}),
          one_of<C>({"status", "", &C::status, "ok, failed, unsupported or out_of_memory"},
                    {"ok", "failed", "unsupported", "out_of_memory"}),
          {"reason", "", &C::reason, "why the status is not ok"},
          {"kernel", "", &C::kernel, "instruction set and formats of the attention that ran"},
          {"host", "", &C::host, "name of the machine that measured the sweep point", Later{}},
      });
}

Fields bytes() {
  return written_by<C>(
      kAll,
      {
          {"bytes_payload", "bytes", &C::bytes_payload, "encoded K and V of kept tokens"},
          {"bytes_metadata", "bytes", &C::bytes_metadata,
           "scales, zero points, block tables and scores, as allocated"},
          {"bytes_slack", "bytes", &C::bytes_slack, "reserved for K and V but not in use"},
          {"bytes_workspace_peak", "bytes", &C::bytes_workspace_peak,
           "largest scratch buffers at once during the steps: partial results, scores, decoded or sliced "
           "copies"},
          {"bytes_copied", "bytes", &C::bytes_copied,
           "decode: moved by growth and slicing in `steps` steps; growth: in all steps"},
          {"bytes_predicted", "bytes", &C::bytes_predicted, "closed form of payload + metadata + slack"},
          {"bytes_device_peak", "bytes", &C::bytes_device_peak,
           "most GPU memory held during the steps, of all kinds; 0 on the CPU"},
          {"rss_peak_bytes", "bytes", &C::rss_peak_bytes, "resident memory of the process, its peak so far"},
      });
}

Fields times() {
  return written_by<C>(
      kSteps, {
                  {"append_p50_us", "us", &C::append_p50_us, "storing one token a sequence; p50 is a median"},
                  {"view_p50_us", "us", &C::view_p50_us,
                   "making the kept rows readable; copies only in read=copy variants"},
                  {"attend_p50_us", "us", &C::attend_p50_us, "attention over what is kept"},
                  {"step_p50_us", "us", &C::step_p50_us,
                   "append + view + attend; of a whole model also its projections and the rest"},
                  {"step_p90_us", "us", &C::step_p90_us, "the 90th percentile of all steps"},
                  {"step_p99_us", "us", &C::step_p99_us, "the 99th"},
                  {"step_max_us", "us", &C::step_max_us, "the slowest step"},
                  {"step_ci_low_us", "us", &C::step_ci_low_us,
                   "95 % interval of the median step (Student's, over repetitions)"},
                  {"step_ci_high_us", "us", &C::step_ci_high_us, "its upper end"},
                  by("decode", {"cold_attend_p50_us", "us", &C::cold_attend_p50_us,
                                "attention rotating over enough caches to leave the last-level cache"}),
                  by("decode", {"cold_ci_low_us", "us", &C::cold_ci_low_us, "its 95 % interval"}),
                  by("decode", {"cold_ci_high_us", "us", &C::cold_ci_high_us, "its upper end"}),
              });
}

Fields roofline() {
  return written_by<C>(
      "decode model",
      {
          by(kSteps,
             {"read_gbps", "GB/s", &C::read_gbps,
              "stored bytes of K, V, scales and zero points that one attend reads / attend_p50_us; empty "
              "with device = cuda, whose attend_p50_us is the host's"}),
          {"ceiling_gbps", "GB/s", &C::ceiling_gbps,
           "measured read bandwidth: reading the same rows in the same order, over and over, and nothing "
           "else (of rows "
           "that are copied before each read, or lie in files: as many other bytes)"},
          {"ceiling_share", "1", &C::ceiling_share,
           "share of measured read bandwidth: read_gbps / ceiling_gbps"},
          by("decode", {"cold_read_gbps", "GB/s", &C::cold_read_gbps,
                        "read_gbps with cold_attend_p50_us, or, with device = cuda, gpu_p50_us"}),
          by("decode",
             {"cold_ceiling_gbps", "GB/s", &C::cold_ceiling_gbps,
              "measured read bandwidth over more than twice the last-level cache; of a GPU over 16 times "
              "its L2, the best of several shapes"}),
          by("decode",
             {"cold_ceiling_share", "1", &C::cold_ceiling_share, "cold_read_gbps / cold_ceiling_gbps"}),
          {"multiply_adds", "", &C::multiply_adds,
           "of one attend: 2 * head_dim for each query head and row that it keeps"},
          {"multiply_add_peak_per_s", "1/s", &C::multiply_add_peak_per_s,
           "measured peak, in registers, of the instructions that the kernel multiplies with"},
          {"multiply_add_peak_spread", "1", &C::multiply_add_peak_spread,
           "its fastest repetition over its slowest: above 1 where the clock changed, or another tenant used "
           "the core"},
          one_of<C>({"bound", "", &C::bound,
                     "roofline, which takes longer: memory (what is read, at ceiling_gbps) or compute "
                     "(multiply_adds at "
                     "their peak)"},
                    {"memory", "compute"}),
          {"bound_us", "us", &C::bound_us, "that time: no attend is faster"},
          {"bound_share", "1", &C::bound_share, "share of the roofline: bound_us / attend_p50_us"},
          by("decode", one_of<C>({"cold_bound", "", &C::cold_bound,
                                  "the same for cold_attend_p50_us, at cold_ceiling_gbps"},
                                 {"memory", "compute"})),
          by("decode",
             {"cold_bound_us", "us", &C::cold_bound_us, "that time: no attend on cold rows is faster"}),
          by("decode", {"cold_bound_share", "1", &C::cold_bound_share, "cold_bound_us / cold_attend_p50_us"}),
      });
}

Fields of_experiments() {
  return {
      by("batch", {"masked_share", "1", &C::masked_share,
                   "batch, padded: rows that attention reads and its mask gives no weight, of all it reads; "
                   "ratio_p50 is what they cost"}),
      by("batch", {"waste_share", "1", &C::waste_share, "batch: slack / (payload + metadata + slack)"}),
      by("prefill model", {"prefill_p50_us", "us", &C::prefill_p50_us,
                           "storing and attending the whole prompt, all layers and sequences; model: reading "
                           "it, up to the first "
                           "token's logits"}),
      by("prefill model", {"prefill_ci_low_us", "us", &C::prefill_ci_low_us,
                           "95 % interval of the median (Student's, over repetitions)"}),
      by("prefill model", {"prefill_ci_high_us", "us", &C::prefill_ci_high_us, "its upper end"}),
      by("prefill model", {"prefill_tokens_per_s", "tokens/s", &C::prefill_tokens_per_s,
                           "tokens of all sequences / prefill_p50_us"}),
      by(kJudged,
         {"err_positions", "tokens", &C::err_positions,
          "budget: last tokens that errors are means over (err_max_abs and err_kernel_rel_l2: the largest)"}),
      by("decode growth budget checkpoint quality recall stream model",
         {"kept_tokens", "tokens", &C::kept_tokens, "of a sequence, a layer and a head at the end"}),
      by(kAll, {"keeps_all", "", &C::keeps_all,
                "1: the retention's budget is not below the sequence, so nothing was evicted and its policy "
                "did nothing; 0: "
                "tokens were evicted; empty: the retention keeps all by design"}),
      by(kAll, {"held_bytes_per_token", "bytes", &C::held_bytes_per_token,
                "payload + metadata + slack + disk over all tokens given, evicted ones included"}),
      by(kJudged, one_of<C>({"eviction_check", "", &C::eviction_check,
                             "fp64: evictions were compared with the FP64 policy; no_policy: the retention "
                             "has none; empty: nothing to "
                             "compare"},
                            {"fp64", "no_policy"})),
      by(kJudged, {"policy_choices", "", &C::policy_choices,
                   "evictions that were compared with the FP64 policy; 0 if that would cost too much"}),
      by(kJudged,
         {"policy_disputed", "", &C::policy_disputed, "of these, near ties that f32 decided otherwise"}),
      by(kAll, {"bytes_disk", "bytes", &C::bytes_disk, "K and V in files, scales and zero points included"}),
      by(kAll, {"series", "", &C::series, "the variant as the config has it: the same at every {budget}"}),
      by("checkpoint",
         {"save_p50_us", "us", &C::save_p50_us, "checkpoint: one sequence to a file, synced to the disk"}),
      by("checkpoint", {"load_p50_us", "us", &C::load_p50_us, "and back, from the page cache"}),
      by("checkpoint", {"freeze_p50_us",
                        "us",
                        &C::freeze_p50_us,
                        "one sequence to a snapshot in memory",
                        {"snapshot_p50_us"}}),
      by("checkpoint",
         {"unfreeze_p50_us", "us", &C::unfreeze_p50_us, "a sequence restored from it", {"restore_p50_us"}}),
      by("checkpoint", {"fork_p50_us", "us", &C::fork_p50_us, "a second sequence of the same contents"}),
      by("checkpoint", {"saved_bytes", "bytes", &C::saved_bytes, "of the file"}),
      by("checkpoint",
         {"fork_bytes", "bytes", &C::fork_bytes, "held more after a fork, until the two differ"}),
      by("checkpoint", {"compact_p50_us", "us", &C::compact_p50_us,
                        "closing a gap of one such sequence before another, of pools that come in segments"}),
      by("checkpoint", {"compact_moved_bytes", "bytes", &C::compact_moved_bytes, "rows that it copied"}),
      by("checkpoint", {"compact_freed_bytes", "bytes", &C::compact_freed_bytes, "segments that went"}),
  };
}

Fields perplexity() {
  return written_by<C>(kReadings, {
                                      {"perplexity", "", &C::perplexity, "exp(loss)"},
                                      {"perplexity_se", "", &C::perplexity_se, "its standard error"},
                                  });
}

// A stream is compared by its losses alone.
Fields of_losses() {
  Fields fields = comparison_fields<C>();
  for (Field<C>& field : fields)
    field.experiments = field.name.starts_with("loss_change") ? kReadings : "quality recall";
  return fields;
}

Fields of_models() {
  return written_by<C>(
      "quality recall generate stream",
      {
          {"peak_bytes", "bytes", &C::peak_bytes, "largest sum of held bytes and workspace"},
          by("quality recall generate stream model", {"tokens_per_s", "tokens/s", &C::tokens_per_s,
                                                      "read or generated by one thread, the model included; "
                                                      "model: batch / step_p50_us, on all threads"}),
          by(kReadings, {"chunk_max_diff", "nats", &C::chunk_max_diff,
                         "chunked: largest change of a loss of the first sequence against token by token"}),
          by(kReadings,
             one_of<C>({"chunk_check", "", &C::chunk_check,
                        "chunked: losses: compared with token by token; answers: those to the same q, k and "
                        "v, where rounding "
                        "of K and V alone decides what is evicted or encoded; by_design: chunks differ"},
                       {"losses", "answers", "by_design"})),
          by("recall", {"distance", "tokens", &C::distance, "recall: from the passage to its copy"}),
          by("recall", {"passage_tokens", "tokens", &C::passage_tokens, "recall: of one copy"}),
          by("stream", {"trained_tokens", "tokens", &C::trained_tokens,
                        "stream: the context that the model was trained for"}),
          by("generate", {"temperature", "", &C::temperature, "generate: 0 is greedy"}),
          by("generate", {"generated_tokens", "tokens", &C::generated_tokens,
                          "generate: of each sequence, after its prompt"}),
          by("generate",
             {"common_tokens_p50", "tokens", &C::common_tokens_p50,
              "generate: before the text differs from the full f32 cache's, median of the sequences"}),
          by("generate", {"common_tokens_min", "tokens", &C::common_tokens_min, "and the fewest"}),
          by("generate", {"same_texts", "", &C::same_texts, "generate: sequences that never differ from it"}),
          by("generate", {"samples_per_prompt", "", &C::samples_per_prompt,
                          "generate: texts of each prompt, where there are several"}),
          by("generate",
             {"samples_held_bytes", "bytes", &C::samples_held_bytes,
              "held by all samples, with slack; what they share once. The columns before count one "
              "sample a prompt"}),
          by("generate",
             {"samples_shared_bytes", "bytes", &C::samples_shared_bytes,
              "rows that samples read where another has stored them; each sample alone would hold its "
              "own"}),
      });
}

Fields of_whole_models() {
  return written_by<C>(
      "model",
      {
          one_of<C>({"weights", "", &C::weights,
                     "file: the model's own; random: of its geometry alone, which take as long"},
                    {"file", "random"}),
          {"weights_type", "", &C::weights_type, "of the matrices, as they are stored: f32, f16 or bf16"},
          one_of<C>(
              {"context", "", &C::context,
               "what precedes the timed steps: prefill, read by the model, or synthetic rows in the cache"},
              {"prefill", "synthetic"}),
          {"projections_p50_us", "us", &C::projections_p50_us,
           "products with weights, the classifier's included"},
          {"state_p50_us", "us", &C::state_p50_us,
           "linear layers' recurrence, which updates and reads their states", Later{}},
          {"rest_p50_us", "us", &C::rest_p50_us, "of a step, what is neither projections nor the cache's"},
          {"tokens_per_s_ci_low", "tokens/s", &C::tokens_per_s_ci_low, "batch / step_ci_high_us"},
          {"tokens_per_s_ci_high", "tokens/s", &C::tokens_per_s_ci_high, "batch / step_ci_low_us"},
          {"weight_bytes_per_token", "bytes", &C::weight_bytes_per_token,
           "of the matrices that a step multiplies with / batch; counted where they are multiplied"},
          {"cache_bytes_per_token", "bytes", &C::cache_bytes_per_token,
           "K, V, scales and zero points that a step's attention reads / batch"},
          {"projection_multiply_adds", "", &C::projection_multiply_adds,
           "of a step's products with weights; without a cache those of all tokens again", Later{}},
          {"bytes_state", "bytes", &C::bytes_state,
           "of bytes_payload, what linear layers keep whatever the length: their states", Later{}},
          {"err_state_rel_l2", "1", &C::err_state_rel_l2,
           "outputs of linear layers' states against the FP64 recurrence over the same inputs", Later{}},
          {"weights_gbps", "GB/s", &C::weights_gbps,
           "measured read bandwidth of the weights: reading the same bytes in the same order, and nothing "
           "else"},
          {"projections_gbps", "GB/s", &C::projections_gbps,
           "bytes of weights of a step / projections_p50_us"},
          {"projections_share", "1", &C::projections_share, "projections_gbps / weights_gbps"},
          {"weights_bound_us", "us", &C::weights_bound_us,
           "roofline of the projections: their bytes at weights_gbps, or their multiply-adds at the measured "
           "f32 "
           "peak"},
          {"state_bound_us", "us", &C::state_bound_us,
           "roofline of the states: bytes_state, read once, at weights_gbps", Later{}},
          {"step_bound_us", "us", &C::step_bound_us,
           "roofline of a step: weights_bound_us + bound_us, that of attention, + state_bound_us"},
          {"step_bound_share", "1", &C::step_bound_share, "% of roofline: step_bound_us / step_p50_us"},
          {"cache_share", "1", &C::cache_share,
           "the cache's part of a step: (append + view + attend)_p50_us / step_p50_us"},
      });
}

Fields comparison() {
  return written_by<C>(
      kCompared,
      {
          by("decode growth prefill batch quality recall generate stream model",
             {"versus", "", &C::versus,
              "the variant, or for prefill the arm, that times or losses are compared with"}),
          by(kTimed, {"ratio_p50", "1", &C::ratio_p50,
                      "median step / that of `versus`, over the interleaved repetitions"}),
          by(kTimed, {"ratio_ci_low", "1", &C::ratio_ci_low,
                      "its interval; wide enough that all verdicts of the sweep point are right together "
                      "with 95 % (Holm)"}),
          by(kTimed, {"ratio_ci_high", "1", &C::ratio_ci_high, "its upper end"}),
          by(kTimed, {"ratio_confidence", "1", &C::ratio_confidence,
                      "of this interval alone: 0.95 for one comparison, else more"}),
          by("decode",
             {"cold_ratio_p50", "1", &C::cold_ratio_p50, "the same of cold_attend_p50_us or gpu_p50_us"}),
          by("decode",
             {"cold_ratio_ci_low", "1", &C::cold_ratio_ci_low, "its interval, as wide as that of ratio_p50"}),
          by("decode", {"cold_ratio_ci_high", "1", &C::cold_ratio_ci_high, "its upper end"}),
          one_of<C>(
              {"verdict", "", &C::verdict,
               "of times: baseline, faster, slower, ambiguous, or aa_test, the baseline against itself; "
               "of losses: baseline, worse, better, negligible, ambiguous, or identical"},
              {"baseline", "aa_test", "faster", "slower", "ambiguous", "worse", "better", "negligible",
               "identical"}),
          by("decode growth prefill batch checkpoint model",
             {"repetitions", "", &C::repetitions, "interleaved repetitions"}),
          by("decode growth prefill batch checkpoint model", {"samples", "", &C::samples, "steps in all"}),
          by(kTimed, {"steal_share", "1", &C::steal_share,
                      "of the processors' time, what the hypervisor gave to other machines meanwhile"}),
          by(kTimed, {"others_share", "1", &C::others_share,
                      "of the processors' time, what other processes took meanwhile"}),
          by(kTimed, {"noise", "", &C::noise, "what disturbed these times; empty for quiet ones"}),
      });
}

Fields all_fields() {
  Fields all;
  for (const Fields& part :
       {identity(), bytes(), times(), gpu_fields(), draft_fields(), roofline(), tier_fields(kAll, kSteps),
        selection_fields(kAll, kOutputs, kJudged), error_fields(kOutputs), of_experiments(),
        written_by(kReadings, loss_fields<C>()), perplexity(), of_losses(), of_models(), of_whole_models(),
        replay_fields(), peer_fields(), comparison()})
    all.insert(all.end(), part.begin(), part.end());
  // What a file of an earlier version lacks is absent; but each has said which cell a row is, and how it ended.
  for (size_t i = identity().size(); i < all.size(); ++i) all[i].later = true;
  return all;
}

}  // namespace

const Schema<CellResult>& cell_schema() {
  static const Schema<CellResult> schema("cells.csv", all_fields());
  return schema;
}

}  // namespace kv::results
