// Compares a cache's outputs with the FP64 oracle, and splits their error by cause.
//
// One factor is swapped at a time, always in FP64 but for the last:
//   O_full    all tokens as they came; in a layer with a window of its own, those that the window holds, unless the cache
//             attends to more
//   O_kept    the tokens that retention kept, as they came    err_retention = |O_kept - O_full|
//   O_read    those of them that the selection chose          err_selection = |O_read - O_kept|
//   O_stored  these rows as the codec stored them             err_codec     = |O_stored - O_read|
//   output    what the kernel made of the stored rows         err_kernel    = |output - O_stored|
//
// The error of the codec has no limit, as a large channel of the workload may cost all others their bits. Instead
// each stored row must be, to the bit, what the codec makes of its token (rows.h), and the codec as good as it states
// (codec_check.h).
//
// With positions=cache the tokens come before RoPE: in O_full they are rotated by their positions, in O_kept
// and O_stored by their cache positions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/verify/metrics/metrics.h"
#include "harness/verify/reference/attention.h"
#include "harness/verify/selection_check.h"
#include "harness/workload/workload.h"
#include "variants/cache/cache.h"

namespace kv::verify {

// The output of a step at the last of `tokens` tokens of one sequence's layer.
struct Output {
  SequenceId sequence;
  int workload_sequence;  // which of the workload's sequences it was fed
  int layer;
  const float* q;    // [q_heads, head_dim]
  const float* out;  // [q_heads, head_dim]
  // As in StepInput.
  const float* sink_logits = nullptr;
  float score_cap = 0;
  int64_t window = 0;  // tokens that the model's layer sees, the newest included; 0: all
};

struct Errors {
  std::vector<double> metrics = std::vector<double>(verify::metrics().size());  // in the order of the table
  double codec_rel_l2 = 0, retention_rel_l2 = 0, selection_rel_l2 = 0, kernel_rel_l2 = 0;
  SelectionCheck selection;            // its choices; nothing where all rows are read
  std::optional<double> state_rel_l2;  // of linear layers (state_check.h)
  int64_t heads = 0;                   // query heads that were checked, of all outputs
  std::string sample;                  // which, in the first output, where not all of its heads were
  double kernel_bound = 0;             // above it the arithmetic, not the codec or the policy, is wrong
  std::string overflow;                // which value the codec could not hold, if there is one
  std::string misstored;               // why the rows are not those that the codec states, if they are not
  // Empty if all is within its bound, else what is not.
  std::string failure() const;
  // By its name in the metrics table.
  double& metric(std::string_view name) { return metrics[metric_index(name)]; }
  double metric(std::string_view name) const { return metrics[metric_index(name)]; }
};

// Of each the mean; the largest of kernel_rel_l2, which has to hold everywhere, and of metrics whose table
// says so. At least one.
Errors mean_of(std::span<const Errors> errors);

// Checks at most kMaxCheckedHeads query heads, spread evenly over outputs and heads: at 131072 tokens each
// costs FP64 work of tens of milliseconds. Of longer sequences it checks fewer in proportion, of so few kv heads that
// no more than kMostCheckedValues of K are in memory at once. `prompt`: tokens of the step that the outputs come from, if it was the
// sequences' first. A retention that cuts prompts has by now dropped rows that those queries still saw: they are
// compared with attention over all.
inline constexpr int kMaxCheckedHeads = 48;
inline constexpr int64_t kMostCheckedTokens = 131072;
inline constexpr int64_t kMostCheckedValues = int64_t{1} << 28;
// Which query heads of one output are checked, ascending: `count` of its kv_heads * group, spread evenly over at most
// `most_kv_heads` kv heads.
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
