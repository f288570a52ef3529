// Compares a cache's outputs with the FP64 oracle and splits their error by cause.
//
// The split swaps one factor at a time, always in FP64 except for the last:
//   O_full    all tokens before encoding; of a layer with a window, the window's unless the cache sees more
//   O_kept    the tokens that retention kept                  err_retention = |O_kept - O_full|
//   O_read    the part of them that the selection chose       err_selection = |O_read - O_kept|
//   O_stored  these rows as the codec stored them             err_codec     = |O_stored - O_read|
//   output    the kernel's result over the stored rows        err_kernel    = |output - O_stored|
//
// The codec's error has no limit, since one large channel of the workload may cost all others their bits. Instead
// each stored row must equal, to the bit, the codec's encoding of its token (rows.h), and the codec must be as exact
// as it states (rows.h).
//
// With positions=cache the tokens come before RoPE: O_full rotates them by their positions, O_kept and O_stored by
// their cache positions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/verify/metrics/metrics.h"
#include "harness/verify/policy_check.h"
#include "harness/verify/reference/attention.h"
#include "harness/workload/workload.h"
#include "variants/cache/cache.h"

namespace kv::verify {

// The output of a step at the last of `tokens` tokens of one sequence's layer.
struct Output {
  SequenceId sequence;
  int workload_sequence;  // the workload's sequence that it was fed
  int layer;
  const float* q;    // [q_heads, head_dim]
  const float* out;  // [q_heads, head_dim]
  // Same as StepInput's.
  const float* sink_logits = nullptr;
  float score_cap = 0;
  int64_t window = 0;  // tokens that the model's layer sees, newest included; 0: all
};

struct Errors {
  std::vector<double> metrics = std::vector<double>(verify::metrics().size());  // in the order of the table
  double codec_rel_l2 = 0, retention_rel_l2 = 0, selection_rel_l2 = 0, kernel_rel_l2 = 0;
  SelectionCheck selection;            // empty choices: all rows are read
  std::optional<double> state_rel_l2;  // linear layers' (state_check.h)
  int64_t heads = 0;                   // query heads checked, over all outputs
  std::string sample;                  // the checked heads of the first output, if not all
  double kernel_bound = 0;             // a larger error means wrong arithmetic, not codec or policy
  std::string overflow;                // the value that the codec could not hold, if any
  std::string misstored;               // the difference of stored rows from the codec's encoding, if any
  // The violated bound, or empty if all hold.
  std::string failure() const;
  // A metric by its name in the table.
  double& metric(std::string_view name) { return metrics[metric_index(name)]; }
  double metric(std::string_view name) const { return metrics[metric_index(name)]; }
};

// Means, but the largest kernel_rel_l2, which must hold everywhere, and the largest of metrics whose table says so.
// Takes at least one.
Errors mean_of(std::span<const Errors> errors);

// Checks at most kMaxCheckedHeads query heads, spread evenly over outputs and heads: at 131072 tokens each costs tens
// of milliseconds of FP64 work. Longer sequences get proportionally fewer heads, of so few KV heads that at most
// kMostCheckedValues of K are in memory at once. `prompt`: tokens of the outputs' step, if it was the sequences'
// first. A retention that cuts prompts has by now dropped rows that those queries saw, so they are compared with
// attention over all rows. Those of a prompt that read its rows as they came (variants/cache/prefill.h) have no codec error.
inline constexpr int kMaxCheckedHeads = 48;
inline constexpr int64_t kMostCheckedTokens = 131072;
inline constexpr int64_t kMostCheckedValues = int64_t{1} << 28;
// Checked query heads of one output, ascending: `count` of its kv_heads * group, spread evenly over at most
// `most_kv_heads` KV heads.
std::vector<int> sampled_heads(int64_t count, int kv_heads, int group, int64_t most_kv_heads);
Errors verify(Cache& cache, const workload::Workload& workload, int64_t tokens,
              std::span<const Output> outputs, int64_t prompt = 0);

// For messages: "1.2e-05".
std::string in_short(double x);

// A cache's RoPE in the reference's terms.
reference::Rotation rotation_of(const Rope& rope, int head_dim);

// ||a - b|| / ||b||.
double relative_l2(std::span<const double> a, std::span<const double> b);

}  // namespace kv::verify
