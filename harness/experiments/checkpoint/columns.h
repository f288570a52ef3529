// The columns that checkpoint alone writes.
#pragma once

#include <string>

#include "harness/results/column.h"

namespace kv::experiments {

inline constexpr results::NumberColumn kSaveP50Us{"save_p50_us", "us",
                                                  "checkpoint: one sequence to a file, synced to the disk"};
inline constexpr results::NumberColumn kLoadP50Us{"load_p50_us", "us", "and back, from the page cache"};
inline constexpr auto kFreezeP50Us =
    results::NumberColumn{"freeze_p50_us", "us", "one sequence to a snapshot in memory"}.formerly(
        "snapshot_p50_us");
inline constexpr auto kUnfreezeP50Us =
    results::NumberColumn{"unfreeze_p50_us", "us", "a sequence restored from it"}.formerly("restore_p50_us");
inline constexpr results::NumberColumn kForkP50Us{"fork_p50_us", "us",
                                                  "a second sequence of the same contents"};
inline constexpr results::IntegerColumn kSavedBytes{"saved_bytes", "bytes", "of the file"};
inline constexpr results::IntegerColumn kForkBytes{"fork_bytes", "bytes",
                                                   "held more after a fork, until the two differ"};
inline constexpr results::NumberColumn kCompactP50Us{
    "compact_p50_us", "us",
    "closing a gap of one such sequence before another, of pools that come in segments"};
inline constexpr results::IntegerColumn kCompactMovedBytes{"compact_moved_bytes", "bytes",
                                                           "rows that it copied"};
inline constexpr results::IntegerColumn kCompactFreedBytes{"compact_freed_bytes", "bytes",
                                                           "segments that went"};
inline constexpr auto kCheckpointColumns =
    results::column_list(kSaveP50Us, kLoadP50Us, kFreezeP50Us, kUnfreezeP50Us, kForkP50Us, kSavedBytes,
                         kForkBytes, kCompactP50Us, kCompactMovedBytes, kCompactFreedBytes);

}  // namespace kv::experiments
