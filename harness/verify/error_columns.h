// The columns of errors against FP64: the split by cause, and the checks of evictions and selections. Each error
// metric has its own column (verify/metrics).
#pragma once

#include <array>

#include "harness/results/cell_columns.h"
#include "harness/verify/metrics/list.h"

namespace kv::verify {

inline constexpr results::NumberColumn kErrCodecRelL2{
    "err_codec_rel_l2", "1", "FP64 on the stored rows against FP64 on the same tokens before encoding"};
inline constexpr results::NumberColumn kErrRetentionRelL2{
    "err_retention_rel_l2", "1", "FP64 on the kept tokens against FP64 on all tokens"};
inline constexpr results::NumberColumn kErrKernelRelL2{
    "err_kernel_rel_l2", "1",
    "the cache's output against FP64 on the stored rows; a cell fails above 1e-5 (f32, f16, bf16, fp8) or "
    "2e-3 (integer codes; 0.2 with arithmetic=int8)"};
inline constexpr results::IntegerColumn kErrHeads{
    "err_heads", "", "query heads compared with FP64, over all sequences and layers"};
inline constexpr results::TextColumn kErrSample{
    "err_sample", "",
    "heads compared in the first layer; empty: all. Beyond 131072 tokens fewer heads, of few KV heads"};
inline constexpr auto kErrorSplitColumns =
    results::column_list(kErrCodecRelL2, kErrRetentionRelL2, kErrKernelRelL2, kErrHeads, kErrSample);

inline constexpr results::NumberColumn kErrSelectionRelL2{
    "err_selection_rel_l2", "1", "selections: FP64 on the rows read against FP64 on the kept rows"};
inline constexpr auto kSelectionCheck =
    results::TextColumn{"selection_check", "",
                        "fp64: the rows read were compared with the FP64 selection's; no_oracle: it has "
                        "none; empty: all rows are read"}
        .one_of("fp64 no_oracle");
inline constexpr results::IntegerColumn kSelectionChoices{
    "selection_choices", "", "rows or pages read that were compared with the FP64 selection's"};
inline constexpr results::IntegerColumn kSelectionDisputed{
    "selection_disputed", "", "choices of selection_choices that were near ties and f32 decided otherwise"};
inline constexpr auto kSelectionColumns =
    results::column_list(kErrSelectionRelL2, kSelectionCheck, kSelectionChoices, kSelectionDisputed);

inline constexpr results::IntegerColumn kErrPositions{
    "err_positions", "tokens",
    "number of tokens that errors are averaged over (err_max_abs and err_kernel_rel_l2: the largest): the "
    "last one; budget: the last so many; eval: spread evenly over the steps"};
inline constexpr auto kEvictionCheck =
    results::TextColumn{"eviction_check", "",
                        "fp64: evictions were compared with the FP64 policy; no_policy: the retention has "
                        "none; empty: nothing to compare"}
        .one_of("fp64 no_policy");
inline constexpr results::IntegerColumn kPolicyChoices{
    "policy_choices", "", "evictions compared with the FP64 policy; 0 if that would cost too much"};
inline constexpr results::IntegerColumn kPolicyDisputed{
    "policy_disputed", "", "choices of policy_choices that were near ties and f32 decided otherwise"};
inline constexpr auto kPositionColumns = results::column_list(kErrPositions);

inline constexpr auto kPolicyColumns = results::column_list(kEvictionCheck, kPolicyChoices, kPolicyDisputed);

inline constexpr results::NumberColumn kErrStateRelL2{
    "err_state_rel_l2", "1",
    "outputs of linear layers' states against the FP64 recurrence over the same inputs"};
inline constexpr auto kStateColumns = results::column_list(kErrStateRelL2);

// One column an error metric.
#define KVLAB_COLUMN(name) &metric::name.column,
inline constexpr std::array<const results::AnyColumn*, kMetrics.size()> kMetricColumns{
    KVLAB_METRICS(KVLAB_COLUMN)};
#undef KVLAB_COLUMN

}  // namespace kv::verify
