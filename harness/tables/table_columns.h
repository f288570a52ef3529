// The columns of the memory table and the budget table.
#pragma once

#include "harness/results/cell_columns.h"
#include "harness/results/table.h"

namespace kv::tables {

inline constexpr results::TextColumn kModel{"model", "", "model of the geometry"};
inline constexpr results::IntegerColumn kSeqLen{"seq_len", "tokens",
                                                "length of each sequence; caches are made for no more"};
inline constexpr results::IntegerColumn kBytes{"bytes", "bytes", "payload, metadata and slack in memory"};

inline constexpr results::TextColumn kMemoryStatus{
    "status", "", "measured: ledger and closed form agree; computed: closed form only; unsupported"};
inline constexpr results::NumberColumn kBytesPerToken{"bytes_per_token", "bytes",
                                                      "bytes / tokens of all sequences"};
inline constexpr results::IntegerColumn kDiskBytes{"disk_bytes", "bytes",
                                                   "bytes in files, not part of `bytes`"};
inline constexpr auto kMemoryColumns =
    results::column_list(kModel, results::kBatch, kSeqLen, results::kVariant, kMemoryStatus, results::kReason,
                         kBytes, kBytesPerToken, kDiskBytes);
inline const results::Table kMemoryTable{"the memory table", {kMemoryColumns.begin(), kMemoryColumns.end()}};

inline constexpr results::IntegerColumn kBudgetBytes{"budget_bytes", "bytes",
                                                     "memory for weights and caches"};
inline constexpr results::IntegerColumn kWeightsBytes{
    "weights_bytes", "bytes", "weights of the model; empty: unknown, and not counted"};
inline constexpr results::TextColumn kWeightsFrom{
    "weights_from", "", "given (--weights), stated (in the model's file) or computed (from its shapes)"};
inline constexpr results::TextColumn kAsked{"asked", "", "longest_context or largest_batch"};
inline constexpr results::TextColumn kFitStatus{"status", "",
                                                "fits; unbounded: at least this many; none: not even one"};
inline constexpr results::IntegerColumn kDiskBudgetBytes{"disk_budget_bytes", "bytes",
                                                         "limit of files; empty: unlimited"};
inline constexpr results::IntegerColumn kBytesHot{"bytes_hot", "bytes",
                                                  "cache bytes in the memory that rows are stored in first"};
inline constexpr results::IntegerColumn kBytesWarm{"bytes_warm", "bytes",
                                                   "cache bytes in the second pool of memory"};
inline constexpr results::IntegerColumn kBytesDisk{"bytes_disk", "bytes", "cache bytes in files"};
inline constexpr auto kFitColumns = results::column_list(
    kModel, results::kVariant, kBudgetBytes, kWeightsBytes, kWeightsFrom, kAsked, kSeqLen, results::kBatch,
    kFitStatus, results::kReason, kBytes, kDiskBudgetBytes, kBytesHot, kBytesWarm, kBytesDisk);
inline const results::Table kFitTable{"the budget table", {kFitColumns.begin(), kFitColumns.end()}};

}  // namespace kv::tables
