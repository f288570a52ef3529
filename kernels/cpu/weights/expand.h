// Weights of any type as f32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/weights/weight_type.h"

namespace kv::cpu {

// `count` weights, whole blocks at any address, to f32: bit for bit what the `gguf` package's dequantiser gives, on every
// instruction set. On the calling thread.
void expand_weights(const std::byte* from, WeightType type, int64_t count, float* to);

}  // namespace kv::cpu
