// The columns of the memory table and the budget table.
#pragma once

#include "harness/results/cell_columns.h"
#include "harness/results/table.h"

namespace kv::tables {

inline constexpr results::TextColumn kModel{"model", "", "model of the geometry"};
inline constexpr results::IntegerColumn kSeqLen{"seq_len", "tokens",
                                                "tokens of each sequence, the capacity of its cache"};
inline constexpr results::IntegerColumn kBytes{"bytes", "bytes", "payload, metadata and slack in memory"};

inline constexpr results::TextColumn kMemoryStatus{
    "status", "", "measured: ledger and closed form agree; computed: closed form only; unsupported"};
inline constexpr results::NumberColumn kBytesPerToken{"bytes_per_token", "bytes",
                                                      "bytes of each token of a sequence"};
inline constexpr results::IntegerColumn kDiskBytes{"disk_bytes", "bytes", "bytes in files"};
inline constexpr auto kMemoryColumns =
    results::column_list(kModel, results::kBatch, kSeqLen, results::kVariant, kMemoryStatus, results::kReason,
                         kBytes, kBytesPerToken, kDiskBytes);
inline const results::Table kMemoryTable{"the memory table", {kMemoryColumns.begin(), kMemoryColumns.end()}};

inline constexpr results::IntegerColumn kBudgetBytes{"budget_bytes", "bytes", "budget of weights and caches"};
inline constexpr results::IntegerColumn kWeightsBytes{
    "weights_bytes", "bytes", "bytes of the model's weights; empty: unknown, and not counted"};
inline constexpr results::TextColumn kWeightsFrom{
    "weights_from", "", "given (--weights), stated (in the model's file) or computed (from its shapes)"};
inline constexpr results::TextColumn kAsked{"asked", "", "longest_context or largest_batch"};
inline constexpr results::TextColumn kFitStatus{"status", "",
                                                "fits; unbounded: at least this many; none: not even one"};
inline constexpr results::IntegerColumn kDiskBudgetBytes{"disk_budget_bytes", "bytes",
                                                         "largest size of files; empty: without limit"};
inline constexpr results::IntegerColumn kBytesHot{"bytes_hot", "bytes",
                                                  "bytes in the memory that rows are first stored in"};
inline constexpr results::IntegerColumn kBytesWarm{"bytes_warm", "bytes",
                                                   "bytes in the second pool of memory"};
inline constexpr results::IntegerColumn kBytesDisk{"bytes_disk", "bytes", "bytes in files"};
inline constexpr auto kFitColumns = results::column_list(
    kModel, results::kVariant, kBudgetBytes, kWeightsBytes, kWeightsFrom, kAsked, kSeqLen, results::kBatch,
    kFitStatus, results::kReason, kBytes, kDiskBudgetBytes, kBytesHot, kBytesWarm, kBytesDisk);
inline const results::Table kFitTable{"the budget table", {kFitColumns.begin(), kFitColumns.end()}};

}  // namespace kv::tables
