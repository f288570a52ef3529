// The columns of other engines' attention, compared with kvlab's variant of the same codec.
#pragma once

#include <string>

#include "harness/results/column.h"

namespace kv::measure {

inline constexpr results::TextColumn kPeer{
    "peer", "", "the engine, where a cell is another engine's; variant then has its format"};
inline constexpr results::TextColumn kPeerVersion{"peer_version", "", "of the engine"};
inline constexpr results::TextColumn kPeerSettings{"peer_settings", "", "how the engine was used"};
inline constexpr results::NumberColumn kPeerTolerance{
    "peer_tolerance", "1", "err_kernel_rel_l2 above which the cell has failed, as the peer's file states it"};
inline constexpr results::IntegerColumn kPeerBytesReported{"peer_bytes_reported", "bytes",
                                                           "the engine's cache, as it says itself"};
inline constexpr results::IntegerColumn kPeerBytesResident{
    "peer_bytes_resident", "bytes",
    "resident memory that its process gained while the cache was made and filled"};
inline constexpr results::TextColumn kPeerVersus{"peer_versus", "",
                                                 "kvlab's variant of the same bits, whose times are 1 here"};
inline constexpr results::NumberColumn kPeerRatioP50{"peer_ratio_p50", "1",
                                                     "step_p50_us / that of peer_versus"};
inline constexpr results::NumberColumn kPeerRatioCiLow{"peer_ratio_ci_low", "1",
                                                       "its 95 % interval (Student's, over repetitions)"};
inline constexpr results::NumberColumn kPeerRatioCiHigh{"peer_ratio_ci_high", "1", "its upper end"};
inline constexpr results::NumberColumn kPeerColdRatioP50{"peer_cold_ratio_p50", "1",
                                                         "cold_attend_p50_us / that of peer_versus"};
inline constexpr results::NumberColumn kPeerColdRatioCiLow{"peer_cold_ratio_ci_low", "1",
                                                           "its 95 % interval"};
inline constexpr results::NumberColumn kPeerColdRatioCiHigh{"peer_cold_ratio_ci_high", "1", "its upper end"};
inline constexpr auto kPeerColumns =
    results::column_list(kPeer, kPeerVersion, kPeerSettings, kPeerTolerance, kPeerBytesReported,
                         kPeerBytesResident, kPeerVersus, kPeerRatioP50, kPeerRatioCiLow, kPeerRatioCiHigh,
                         kPeerColdRatioP50, kPeerColdRatioCiLow, kPeerColdRatioCiHigh);

}  // namespace kv::measure
