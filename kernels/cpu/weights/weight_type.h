// How weights are stored: floats, or ggml's blocks (https://github.com/ggml-org/ggml), each of which has
// scales, and perhaps minimums, of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kv::cpu {

enum class WeightType : uint8_t { kF32, kF16, kBf16, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4K, kQ5K, kQ6K };

struct WeightLayout {
  std::string_view name;  // in files
  int64_t values, bytes;  // of a block
};
const WeightLayout& layout_of(WeightType type);
// Nothing where no type has this name.
std::optional<WeightType> weight_type(std::string_view name);
// True for types of more than one value a block.
inline bool is_blocks(WeightType type) { return type > WeightType::kBf16; }

}  // namespace kv::cpu
