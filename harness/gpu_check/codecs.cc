#include "harness/gpu_check/codecs.h"

#include <stdexcept>

namespace kv::gpu_check {
namespace {

constexpr Encoding kRaw{.format = Format::kF16, .bits = 16};

Encoding row_format(Format format, int bits) {
  return {.format = format, .bits = static_cast<uint8_t>(bits)};
}
Encoding token(int bits, bool affine = true) {
  return {.format = Format::kToken, .bits = static_cast<uint8_t>(bits), .affine = affine};
}
Encoding channel(int bits) {
  return {.format = Format::kChannel, .bits = static_cast<uint8_t>(bits), .group = 32, .affine = true};
}

}  // namespace

const std::vector<CodecChoice>& codecs() {
  const auto same = [](const char* name, const Encoding& e) { return CodecChoice{name, {e, e}}; };
  static const std::vector<CodecChoice> all{
      same("f32", {}),
      same("f16", kRaw),
      same("bf16", row_format(Format::kBf16, 16)),
      same("fp8", row_format(Format::kFp8E4M3, 8)),
      same("fp8e5m2", row_format(Format::kFp8E5M2, 8)),
      same("q8_0", row_format(Format::kQ8_0, 8)),
      same("q4_0", row_format(Format::kQ4_0, 4)),
      same("token8", token(8)),
      same("token4", token(4)),
      same("token2", token(2)),
      same("symmetric8", token(8, false)),
      same("symmetric4", token(4, false)),
      same("symmetric2", token(2, false)),
      {"q8_0+q4_0", {row_format(Format::kQ8_0, 8), row_format(Format::kQ4_0, 4)}},
      {"kivi8", {channel(8), token(8)}},
      {"kivi4", {channel(4), token(4)}},
      {"kivi2", {channel(2), token(2)}}};
  return all;
}

const CodecPair& codec_named(const std::string& name) {
  for (const CodecChoice& codec : codecs()) {
    if (codec.name == name) return codec.codec;
  }
  throw std::logic_error("no codec " + name);
}

}  // namespace kv::gpu_check
