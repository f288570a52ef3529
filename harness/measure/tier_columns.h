// The columns of placements with several tiers. bytes_disk and read_gbps, which tiers do not split, are elsewhere.
#pragma once

#include "harness/results/column.h"

namespace kv::measure {

inline constexpr results::IntegerColumn kBytesHot{
    "bytes_hot", "bytes", "tiers: payload, metadata and slack in the memory that rows are first stored in"};
inline constexpr results::IntegerColumn kBytesWarm{
    "bytes_warm", "bytes",
    "tiers: payload, metadata and slack in the second pool of memory; bytes_disk has those in files"};
inline constexpr results::IntegerColumn kReadHotBytes{"read_hot_bytes", "bytes",
                                                      "tiers: bytes of hot rows that one step reads"};
inline constexpr results::IntegerColumn kReadWarmBytes{"read_warm_bytes", "bytes",
                                                       "tiers: bytes of warm rows that one step reads"};
inline constexpr results::IntegerColumn kReadDiskBytes{
    "read_disk_bytes", "bytes",
    "tiers: bytes that one step reads from files, by the ledger's count of requests; whole chunks"};
inline constexpr auto kSimulated =
    results::TextColumn{"simulated", "",
                        "tiers: link: file reads were slowed to link_gbps, so times are not this machine's"}
        .one_of("link");
inline constexpr auto kTierBytesColumns =
    results::column_list(kBytesHot, kBytesWarm, kReadHotBytes, kReadWarmBytes, kReadDiskBytes, kSimulated);

inline constexpr results::NumberColumn kHotReadGbps{"hot_read_gbps", "GB/s",
                                                    "tiers: read rate of attention over the hot rows alone"};
inline constexpr results::NumberColumn kHotCeilingGbps{
    "hot_ceiling_gbps", "GB/s",
    "tiers: measured read bandwidth of the hot rows: reading them and nothing else"};
inline constexpr results::NumberColumn kHotCeilingShare{"hot_ceiling_share", "1",
                                                        "hot_read_gbps / hot_ceiling_gbps"};
inline constexpr results::NumberColumn kWarmReadGbps{
    "warm_read_gbps", "GB/s", "tiers: read rate of attention over the warm rows alone"};
inline constexpr results::NumberColumn kWarmCeilingGbps{
    "warm_ceiling_gbps", "GB/s",
    "tiers: measured read bandwidth of the warm rows: reading them and nothing else"};
inline constexpr results::NumberColumn kWarmCeilingShare{"warm_ceiling_share", "1",
                                                         "warm_read_gbps / warm_ceiling_gbps"};
inline constexpr results::NumberColumn kDiskReadGbps{
    "disk_read_gbps", "GB/s",
    "tiers: bytes read from files in the timed steps / time in which any request was in flight"};
inline constexpr results::NumberColumn kDiskCeilingGbps{
    "disk_ceiling_gbps", "GB/s",
    "tiers: measured read rate of a file of the same folder and io, from beginning to end by requests of the "
    "same size, as many in flight"};
inline constexpr results::NumberColumn kDiskCeilingShare{"disk_ceiling_share", "1",
                                                         "disk_read_gbps / disk_ceiling_gbps"};
inline constexpr results::NumberColumn kDiskDeviceShare{
    "disk_device_share", "1",
    "tiers: share of the bytes read from files in the timed steps that a device delivered; the rest came "
    "from the page cache"};
inline constexpr results::NumberColumn kDiskHiddenShare{
    "disk_hidden_share", "1",
    "tiers: share of the file requests' time in which attention did not wait, because it worked on rows that "
    "had arrived or were in memory"};
inline constexpr auto kTierBound =
    results::TextColumn{"tier_bound", "",
                        "tiers: longest of memory (hot and warm bytes at their ceilings, one after the "
                        "other), disk and compute"}
        .one_of("memory disk compute");
inline constexpr results::NumberColumn kTierBoundUs{
    "tier_bound_us", "us", "tiers: time of tier_bound, the least of a step that overlaps all three"};
inline constexpr results::NumberColumn kTierBoundShare{"tier_bound_share", "1",
                                                       "tier_bound_us / attend_p50_us"};
inline constexpr auto kTierTimeColumns =
    results::column_list(kHotReadGbps, kHotCeilingGbps, kHotCeilingShare, kWarmReadGbps, kWarmCeilingGbps,
                         kWarmCeilingShare, kDiskReadGbps, kDiskCeilingGbps, kDiskCeilingShare,
                         kDiskDeviceShare, kDiskHiddenShare, kTierBound, kTierBoundUs, kTierBoundShare);

}  // namespace kv::measure
