// The one table of variants: a new variant is one new file and one line here.
#pragma once

#include <array>

#include "variants/registry.h"

namespace kv {

// Each entry is defined in the file of its name, in variants/placement, variants/codec or variants/retention.
namespace placement {
extern const PlacementEntry contiguous, concat, doubling, segmented, paged, tiered;
}
namespace codec {
extern const CodecEntry f32, f16, bf16, fp8, q8_0, q4_0, token, kivi, split;
}
namespace retention {
extern const RetentionEntry full, ring, h2o, tova, knorm, random, snapkv;
}

// The first of each kind is what a spec string leaves out.
inline constexpr std::array kPlacements{&placement::contiguous, &placement::concat, &placement::doubling,
                                        &placement::segmented,  &placement::paged,  &placement::tiered};
inline constexpr std::array kCodecs{&codec::f32,  &codec::f16,   &codec::bf16, &codec::fp8,  &codec::q8_0,
                                    &codec::q4_0, &codec::token, &codec::kivi, &codec::split};
inline constexpr std::array kRetentions{&retention::full,  &retention::ring,  &retention::h2o,
                                        &retention::tova,  &retention::knorm, &retention::random,
                                        &retention::snapkv};

}  // namespace kv
