// The columns of other engines' attention, compared with kvlab's variant of the same codec.
#pragma once

#include <string>

#include "harness/results/estimate.h"

namespace kv::measure {

inline constexpr results::TextColumn kPeer{
    "peer", "", "name of the other engine, if the cell is another engine's; variant then has its format"};
inline constexpr results::TextColumn kPeerVersion{"peer_version", "", "version of the engine"};
inline constexpr results::TextColumn kPeerSettings{"peer_settings", "", "settings of the engine"};
inline constexpr results::NumberColumn kPeerTolerance{
    "peer_tolerance", "1",
    "largest err_kernel_rel_l2 of a cell that has not failed, stated by the peer's file"};
inline constexpr results::IntegerColumn kPeerBytesReported{
    "peer_bytes_reported", "bytes", "size of the engine's cache, as the engine reports it"};
inline constexpr results::IntegerColumn kPeerBytesResident{
    "peer_bytes_resident", "bytes",
    "resident memory added to the engine's process by making and filling the cache"};
inline constexpr results::TextColumn kPeerVersus{
    "peer_versus", "", "kvlab's variant of the same bits, the baseline of peer_ratio_p50"};
inline constexpr auto kPeerRatioP50 = results::estimate<"peer_ratio_p50", "peer_ratio_ci_*">(
    "1", "step_p50_us / step_p50_us of peer_versus",
    "95 % interval (over repetitions; results/README.md has the formula)");
inline constexpr auto kPeerColdRatioP50 = results::estimate<"peer_cold_ratio_p50", "peer_cold_ratio_ci_*">(
    "1", "cold_attend_p50_us / cold_attend_p50_us of peer_versus");
inline constexpr auto kPeerColumns =
    results::column_list(kPeer, kPeerVersion, kPeerSettings, kPeerTolerance, kPeerBytesReported,
                         kPeerBytesResident, kPeerVersus, kPeerRatioP50, kPeerColdRatioP50);

}  // namespace kv::measure
