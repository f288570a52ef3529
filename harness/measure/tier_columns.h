// The columns of placements with several tiers. bytes_disk and read_gbps, which tiers do not split, are elsewhere.
#pragma once

#include <string>

#include "harness/results/column.h"

namespace kv::measure {

inline constexpr results::IntegerColumn kBytesHot{
    "bytes_hot", "bytes", "tiers: payload, metadata and slack in the memory that rows are stored in first"};
inline constexpr results::IntegerColumn kBytesWarm{
    "bytes_warm", "bytes", "tiers: in the second pool of memory; those in files are bytes_disk"};
inline constexpr auto kTierBytesColumns = results::column_list(kBytesHot, kBytesWarm);

inline constexpr results::IntegerColumn kReadHotBytes{"read_hot_bytes", "bytes",
                                                      "tiers: that one step reads of the hot rows"};
inline constexpr results::IntegerColumn kReadWarmBytes{"read_warm_bytes", "bytes", "tiers: of the warm rows"};
inline constexpr results::IntegerColumn kReadDiskBytes{
    "read_disk_bytes", "bytes", "tiers: of files, as the ledger has counted the requests; whole chunks"};
inline constexpr auto kTierReadColumns = results::column_list(kReadHotBytes, kReadWarmBytes, kReadDiskBytes);

inline constexpr results::NumberColumn kHotReadGbps{"hot_read_gbps", "GB/s",
                                                    "tiers: attention over the hot rows alone"};
inline constexpr results::NumberColumn kHotCeilingGbps{"hot_ceiling_gbps", "GB/s",
                                                       "tiers: reading these rows and nothing else"};
inline constexpr results::NumberColumn kHotCeilingShare{"hot_ceiling_share", "1",
                                                        "hot_read_gbps / hot_ceiling_gbps"};
inline constexpr results::NumberColumn kWarmReadGbps{"warm_read_gbps", "GB/s",
                                                     "tiers: attention over the warm rows alone"};
inline constexpr results::NumberColumn kWarmCeilingGbps{"warm_ceiling_gbps", "GB/s",
                                                        "tiers: reading these rows and nothing else"};
inline constexpr results::NumberColumn kWarmCeilingShare{"warm_ceiling_share", "1",
                                                         "warm_read_gbps / warm_ceiling_gbps"};
inline constexpr results::NumberColumn kDiskReadGbps{
    "disk_read_gbps", "GB/s",
    "tiers: bytes read from files in the timed steps / the time in which any request was in "
    "flight"};
inline constexpr results::NumberColumn kDiskCeilingGbps{
    "disk_ceiling_gbps", "GB/s",
    "tiers: a file of the same folder and io, read from begin to end by requests of the same "
    "size, as many in flight"};
inline constexpr results::NumberColumn kDiskCeilingShare{"disk_ceiling_share", "1",
                                                         "disk_read_gbps / disk_ceiling_gbps"};
inline constexpr results::NumberColumn kDiskDeviceShare{
    "disk_device_share", "1",
    "tiers: of the bytes read from files in the timed steps, what a device delivered; the "
    "rest came from the page cache"};
inline constexpr results::NumberColumn kDiskHiddenShare{
    "disk_hidden_share", "1",
    "tiers: of the time in which requests of files were in flight, what attention did not "
    "wait for, since it was working on rows that had come or are in memory"};
inline constexpr auto kSimulated =
    results::TextColumn{"simulated", "",
                        "tiers: link: reading files was slowed to link_gbps, so times are not this machine's"}
        .one_of("link");
inline constexpr auto kTierBound =
    results::TextColumn{
        "tier_bound", "",
        "tiers: which takes longest: memory (hot and warm bytes at their ceilings, one after the "
        "other), disk, or compute"}
        .one_of("memory disk compute");
inline constexpr results::NumberColumn kTierBoundUs{
    "tier_bound_us", "us", "that time: a step that overlaps all three takes as long"};
inline constexpr results::NumberColumn kTierBoundShare{"tier_bound_share", "1",
                                                       "tier_bound_us / attend_p50_us"};
inline constexpr auto kTierTimeColumns = results::column_list(
    kHotReadGbps, kHotCeilingGbps, kHotCeilingShare, kWarmReadGbps, kWarmCeilingGbps, kWarmCeilingShare,
    kDiskReadGbps, kDiskCeilingGbps, kDiskCeilingShare, kDiskDeviceShare, kDiskHiddenShare, kSimulated,
    kTierBound, kTierBoundUs, kTierBoundShare);

}  // namespace kv::measure
