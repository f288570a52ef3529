#include "kernels/format/ggml_blocks.h"

#include <cstring>
#include <stdexcept>

#include "kernels/format/ggml_format.h"

namespace kv {
namespace {

constexpr int64_t kScaleBytes = 2;

int64_t code_bytes(Format format) {
  const FormatDescriptor& blocks = descriptor_of(format);
  if (blocks.scaling != Scaling::kBlock || blocks.elements != Elements::kCodes)
    throw std::logic_error("only q8_0 and q4_0 are ggml's");
  return kGgmlBlock * blocks.bits / 8;
}

}  // namespace

int64_t ggml_block_bytes(Format format) { return kScaleBytes + code_bytes(format); }

void to_ggml_blocks(Format format, int head_dim, const std::byte* data, const std::byte* meta,
                    std::byte* blocks) {
  const int64_t codes = code_bytes(format);
  for (int b = 0; b < head_dim / kGgmlBlock; ++b, blocks += kScaleBytes + codes) {
    std::memcpy(blocks, meta + b * kScaleBytes, kScaleBytes);
    std::memcpy(blocks + kScaleBytes, data + b * codes, static_cast<size_t>(codes));
  }
}

void from_ggml_blocks(Format format, int head_dim, const std::byte* blocks, std::byte* data,
                      std::byte* meta) {
  const int64_t codes = code_bytes(format);
  for (int b = 0; b < head_dim / kGgmlBlock; ++b, blocks += kScaleBytes + codes) {
    std::memcpy(meta + b * kScaleBytes, blocks, kScaleBytes);
    std::memcpy(data + b * codes, blocks + kScaleBytes, static_cast<size_t>(codes));
  }
}

}  // namespace kv
