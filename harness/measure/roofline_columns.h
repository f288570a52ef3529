// The columns of attention's roofline: bytes read, multiply-adds, and the machine's peaks.
#pragma once

#include <string>

#include "harness/results/column.h"

namespace kv::measure {

inline constexpr results::NumberColumn kCeilingGbps{
    "ceiling_gbps", "GB/s",
    "measured read bandwidth: reading the same rows, repeatedly, and nothing else, the fastest of several "
    "orders (for "
    "rows copied before each read or in files: the same number of other bytes)"};
inline constexpr results::NumberColumn kCeilingShare{
    "ceiling_share", "1", "share of measured read bandwidth: read_gbps / ceiling_gbps"};
inline constexpr results::IntegerColumn kMultiplyAdds{
    "multiply_adds", "",
    "multiply-adds of one attend: 2 * head_dim for each query head and row that it keeps"};
inline constexpr results::NumberColumn kMultiplyAddPeakPerS{
    "multiply_add_peak_per_s", "1/s",
    "measured peak, in registers, of the kernel's multiply-add instructions"};
inline constexpr results::NumberColumn kMultiplyAddPeakSpread{
    "multiply_add_peak_spread", "1",
    "fastest over slowest repetition of the multiply-add peak: above 1 if the clock changed or another "
    "tenant used the core"};
inline constexpr auto kBound =
    results::TextColumn{"bound", "",
                        "side of the roofline that takes longer: memory (bytes read at ceiling_gbps) or "
                        "compute (multiply_adds at their peak)"}
        .one_of("memory compute");
inline constexpr results::NumberColumn kBoundUs{"bound_us", "us", "roofline of one attend: its least time"};
inline constexpr results::NumberColumn kBoundShare{"bound_share", "1",
                                                   "share of the roofline: bound_us / attend_p50_us"};
inline constexpr auto kRooflineColumns =
    results::column_list(kCeilingGbps, kCeilingShare, kMultiplyAdds, kMultiplyAddPeakPerS,
                         kMultiplyAddPeakSpread, kBound, kBoundUs, kBoundShare);

inline constexpr results::NumberColumn kColdReadGbps{
    "cold_read_gbps", "GB/s",
    "cold read rate: the bytes of read_gbps / cold_attend_p50_us, or with device = cuda / gpu_p50_us"};
inline constexpr results::NumberColumn kColdCeilingGbps{
    "cold_ceiling_gbps", "GB/s",
    "measured read bandwidth over more than twice the last-level cache; on a GPU over 16 times its L2, the "
    "best of several shapes"};
inline constexpr results::NumberColumn kColdCeilingShare{"cold_ceiling_share", "1",
                                                         "cold_read_gbps / cold_ceiling_gbps"};
inline constexpr auto kColdBound =
    results::TextColumn{"cold_bound", "",
                        "side of the roofline that takes longer for cold_attend_p50_us, at "
                        "cold_ceiling_gbps: memory or compute"}
        .one_of("memory compute");
inline constexpr results::NumberColumn kColdBoundUs{"cold_bound_us", "us",
                                                    "roofline of one attend on cold rows: its least time"};
inline constexpr results::NumberColumn kColdBoundShare{"cold_bound_share", "1",
                                                       "cold_bound_us / cold_attend_p50_us"};
inline constexpr auto kColdRooflineColumns = results::column_list(
    kColdReadGbps, kColdCeilingGbps, kColdCeilingShare, kColdBound, kColdBoundUs, kColdBoundShare);

}  // namespace kv::measure
