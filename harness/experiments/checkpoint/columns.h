// The columns that checkpoint alone writes.
#pragma once

#include "harness/results/column.h"

namespace kv::experiments {

inline constexpr results::NumberColumn kSaveP50Us{
    "save_p50_us", "us", "checkpoint: time to save a sequence to a file and sync it to the disk"};
inline constexpr results::NumberColumn kLoadP50Us{
    "load_p50_us", "us", "checkpoint: time to load a saved sequence from the page cache"};
inline constexpr auto kFreezeP50Us =
    results::NumberColumn{"freeze_p50_us", "us",
                          "checkpoint: time to take a snapshot of a sequence in memory"}
        .formerly("snapshot_p50_us");
inline constexpr auto kUnfreezeP50Us =
    results::NumberColumn{"unfreeze_p50_us", "us",
                          "checkpoint: time to restore a sequence from a snapshot in memory"}
        .formerly("restore_p50_us");
inline constexpr auto kForkP50Us =
    results::NumberColumn{"fork_p50_us", "us", "checkpoint: time to fork a sequence"}.called("fork, p50");
inline constexpr results::IntegerColumn kSavedBytes{"saved_bytes", "bytes",
                                                    "checkpoint: size of a saved sequence's file"};
inline constexpr results::IntegerColumn kForkBytes{
    "fork_bytes", "bytes", "checkpoint: bytes added by a fork until the two sequences differ"};
inline constexpr results::NumberColumn kCompactP50Us{
    "compact_p50_us", "us",
    "checkpoint: time to close a gap of one sequence before another, in pools with segments"};
inline constexpr results::IntegerColumn kCompactMovedBytes{"compact_moved_bytes", "bytes",
                                                           "checkpoint: rows copied by compaction"};
inline constexpr results::IntegerColumn kCompactFreedBytes{"compact_freed_bytes", "bytes",
                                                           "checkpoint: segments freed by compaction"};
inline constexpr auto kCheckpointColumns =
    results::column_list(kSaveP50Us, kLoadP50Us, kFreezeP50Us, kUnfreezeP50Us, kForkP50Us, kSavedBytes,
                         kForkBytes, kCompactP50Us, kCompactMovedBytes, kCompactFreedBytes);

}  // namespace kv::experiments
