#include "kernels/format/ggml_blocks.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <stdexcept>

#include "kernels/format/ggml_format.h"

namespace kv {
namespace {

constexpr Format kFormats[] = {Format::kQ8_0, Format::kQ4_0,  Format::kQ4_1, Format::kQ5_0,
                               Format::kQ5_1, Format::kIq4Nl, Format::kQ6_0};

// The bytes of one block.
struct BlockBytes {
  size_t scales, codes;
};

BlockBytes bytes_of(Format format) {
  if (std::ranges::find(kFormats, format) == std::end(kFormats))
    throw std::logic_error(descriptor_of(format).name({.format = format}) + " is no format of ggml's");
  const FormatDescriptor& blocks = descriptor_of(format);
  return {static_cast<size_t>(blocks.meta_bytes({}, kGgmlBlock)),
          static_cast<size_t>(blocks.data_bytes({}, kGgmlBlock))};
}

}  // namespace

int64_t ggml_block_bytes(Format format) {
  const BlockBytes bytes = bytes_of(format);
  return static_cast<int64_t>(bytes.scales + bytes.codes);
}

void to_ggml_blocks(Format format, int head_dim, const std::byte* data, const std::byte* meta,
                    std::byte* blocks) {
  const auto [scales, codes] = bytes_of(format);
  for (int b = 0; b < head_dim / kGgmlBlock; ++b, blocks += scales + codes, meta += scales, data += codes) {
    std::memcpy(blocks, meta, scales);
    std::memcpy(blocks + scales, data, codes);
  }
}

void from_ggml_blocks(Format format, int head_dim, const std::byte* blocks, std::byte* data,
                      std::byte* meta) {
  const auto [scales, codes] = bytes_of(format);
  for (int b = 0; b < head_dim / kGgmlBlock; ++b, blocks += scales + codes, meta += scales, data += codes) {
    std::memcpy(meta, blocks, scales);
    std::memcpy(data, blocks + scales, codes);
  }
}

}  // namespace kv
