// The columns of a whole model's decode step: its parts beside attention, and its roofline.
#pragma once

#include "harness/measure/prediction_columns.h"
#include "harness/measure/time_columns.h"
#include "harness/results/column.h"

namespace kv::experiments {

inline constexpr auto kWeights =
    results::TextColumn{
        "weights", "",
        "file: the model's own weights; random: weights of its geometry, which take the same time"}
        .one_of("file random");
inline constexpr results::TextColumn kWeightsType{"weights_type", "",
                                                  "stored type of the weight matrices, as f32 or q4_0"};
inline constexpr auto kContext =
    results::TextColumn{
        "context", "",
        "tokens before the timed steps: prefill (read by the model) or synthetic rows in the cache"}
        .one_of("prefill synthetic");
inline constexpr results::NumberColumn kWeightBytesPerToken{
    "weight_bytes_per_token", "bytes",
    "bytes of the matrices that a step multiplies with / batch; counted at each product"};
inline constexpr results::NumberColumn kCacheBytesPerToken{
    "cache_bytes_per_token", "bytes", "K, V, scales and zero points that a step's attention reads / batch"};
inline constexpr results::IntegerColumn kProjectionMultiplyAdds{
    "projection_multiply_adds", "",
    "multiply-adds of a step's products with weights; without a cache, of all tokens again"};
inline constexpr results::NumberColumn kWeightsGbps{
    "weights_gbps", "GB/s",
    "measured read bandwidth of the weights: reading the same bytes in the same order, and nothing else"};
inline constexpr results::NumberColumn kProjectionsGbps{"projections_gbps", "GB/s",
                                                        "weight bytes of a step / projections_p50_us"};
inline constexpr results::NumberColumn kProjectionsShare{"projections_share", "1",
                                                         "projections_gbps / weights_gbps"};
inline constexpr results::NumberColumn kWeightsBoundUs{
    "weights_bound_us", "us",
    "roofline of the projections: their bytes at weights_gbps, or their multiply-adds at the measured f32 "
    "peak"};
inline constexpr results::NumberColumn kStateBoundUs{
    "state_bound_us", "us", "roofline of the states: bytes_state, read once, at weights_gbps"};
inline constexpr results::NumberColumn kStepBoundUs{
    "step_bound_us", "us", "roofline of a step: weights_bound_us + bound_us (attention) + state_bound_us"};
inline constexpr results::NumberColumn kStepBoundShare{"step_bound_share", "1",
                                                       "share of the roofline: step_bound_us / step_p50_us"};
inline constexpr results::NumberColumn kCacheShare{
    "cache_share", "1", "the cache's share of a step: (append + view + attend)_p50_us / step_p50_us"};
inline constexpr auto kModelColumns = results::column_list(
    kWeights, kWeightsType, kContext, measure::kProjectionsP50Us, measure::kStateP50Us, measure::kRestP50Us,
    measure::kTokensPerS.low, measure::kTokensPerS.high, kWeightBytesPerToken, kCacheBytesPerToken,
    kProjectionMultiplyAdds, kWeightsGbps, kProjectionsGbps, kProjectionsShare, kWeightsBoundUs,
    kStateBoundUs, kStepBoundUs, kStepBoundShare, kCacheShare);

}  // namespace kv::experiments
