// The columns of attention's roofline: bytes read, multiply-adds, and the machine's peaks.
#pragma once

#include <string>

#include "harness/results/column.h"

namespace kv::measure {

inline constexpr results::NumberColumn kCeilingGbps{
    "ceiling_gbps", "GB/s",
    "measured read bandwidth: reading the same rows in the same order, over and over, and "
    "nothing else (of rows that are copied before each read, or lie in files: as many other "
    "bytes)"};
inline constexpr results::NumberColumn kCeilingShare{
    "ceiling_share", "1", "share of measured read bandwidth: read_gbps / ceiling_gbps"};
inline constexpr results::IntegerColumn kMultiplyAdds{
    "multiply_adds", "", "of one attend: 2 * head_dim for each query head and row that it keeps"};
inline constexpr results::NumberColumn kMultiplyAddPeakPerS{
    "multiply_add_peak_per_s", "1/s",
    "measured peak, in registers, of the instructions that the kernel multiplies with"};
inline constexpr results::NumberColumn kMultiplyAddPeakSpread{
    "multiply_add_peak_spread", "1",
    "its fastest repetition over its slowest: above 1 where the clock changed, or another "
    "tenant used the core"};
inline constexpr auto kBound =
    results::TextColumn{"bound", "",
                        "roofline, which takes longer: memory (what is read, at ceiling_gbps) or compute "
                        "(multiply_adds at their peak)"}
        .one_of("memory compute");
inline constexpr results::NumberColumn kBoundUs{"bound_us", "us", "that time: no attend is faster"};
inline constexpr results::NumberColumn kBoundShare{"bound_share", "1",
                                                   "share of the roofline: bound_us / attend_p50_us"};
inline constexpr auto kRooflineColumns =
    results::column_list(kCeilingGbps, kCeilingShare, kMultiplyAdds, kMultiplyAddPeakPerS,
                         kMultiplyAddPeakSpread, kBound, kBoundUs, kBoundShare);

inline constexpr results::NumberColumn kColdReadGbps{
    "cold_read_gbps", "GB/s", "read_gbps with cold_attend_p50_us, or, with device = cuda, gpu_p50_us"};
inline constexpr results::NumberColumn kColdCeilingGbps{
    "cold_ceiling_gbps", "GB/s",
    "measured read bandwidth over more than twice the last-level cache; of a GPU over 16 "
    "times its L2, the best of several shapes"};
inline constexpr results::NumberColumn kColdCeilingShare{"cold_ceiling_share", "1",
                                                         "cold_read_gbps / cold_ceiling_gbps"};
inline constexpr auto kColdBound =
    results::TextColumn{"cold_bound", "", "the same for cold_attend_p50_us, at cold_ceiling_gbps"}.one_of(
        "memory compute");
inline constexpr results::NumberColumn kColdBoundUs{"cold_bound_us", "us",
                                                    "that time: no attend on cold rows is faster"};
inline constexpr results::NumberColumn kColdBoundShare{"cold_bound_share", "1",
                                                       "cold_bound_us / cold_attend_p50_us"};
inline constexpr auto kColdRooflineColumns = results::column_list(
    kColdReadGbps, kColdCeilingGbps, kColdCeilingShare, kColdBound, kColdBoundUs, kColdBoundShare);

}  // namespace kv::measure
