// The solver's candidate of `kvlab choose`: a format for each layer's K and V, from what each format does there alone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>

#include "variants/model_cache/layer_groups.h"

namespace kv::choose {

// KL divergence, nats, of a codec in one layer's K or V alone: by layer, side ('K' or 'V') and codec.
using LayerLosses = std::map<std::tuple<int, char, std::string>, double>;

// The codecs that a mixture is made of; the first is taken to lose nothing.
inline constexpr const char* kMixtureCodecs[] = {"f16", "q8_0", "q4_0(rotate=hadamard)",
                                                 "kivi(bits=2,residual=0)"};

// The spec whose predicted loss, the sum of `losses`, is least among those of at most `memory_bytes` for sequences of `lengths` tokens.
// Empty where not even the smallest fits. A loss that is missing is a bug (std::logic_error).
std::optional<std::string> mixture_spec(const LayerLosses& losses, const ModelShape& shape,
                                        std::span<const int64_t> lengths, int64_t memory_bytes);

}  // namespace kv::choose
