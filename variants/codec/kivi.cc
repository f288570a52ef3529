// kivi: K per channel over groups of tokens, V per token, the newest rows raw (Liu et al. 2024,
// arXiv:2402.02750).
//
// A few channels of K are large for every token. Under a scale per token they set the step of all channels;
// under a scale per channel they only set their own. V has no such channels. k_axis=token stores K per token
// as well and changes nothing else (groups, residual and V stay), so that the ratio of two errors is due to
// the axis alone.
#include <algorithm>

#include "variants/codec/expected_error.h"
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {
namespace {

int bits_of(const Stage& stage, const char* side) {
  const int64_t own = stage.integer(side);
  return static_cast<int>(own ? own : stage.integer("bits"));
}

Encoding per_token(int bits) {
  return {.format = Format::kToken, .bits = static_cast<uint8_t>(bits), .affine = true};
}

Codec make(const Stage& stage) {
  const int k_bits = bits_of(stage, "k_bits"), v_bits = bits_of(stage, "v_bits");
  const int group = static_cast<int>(stage.integer("group"));
  const bool by_channel = stage.text("k_axis") == "channel";
  const Encoding per_channel{.format = Format::kChannel,
                             .bits = static_cast<uint8_t>(k_bits),
                             .group = static_cast<uint16_t>(group),
                             .affine = true};
  return {.k = by_channel ? per_channel : per_token(k_bits),
          .v = per_token(v_bits),
          .rows_together = group,
          .residual = residual_rows(stage),
          .read_copy = reads_copy(stage),
          .hadamard = stores_hadamard(stage),
          .k_error = affine_error(k_bits, by_channel ? GridSize{group, group} : kWholeRow),
          .v_error = affine_error(v_bits, kWholeRow)};
}

}  // namespace

const CodecEntry kivi{
    {.name = "kivi",
     .help = "K per channel over groups of tokens, V per token, the newest rows raw f16",
     .source = "KIVI (arXiv:2402.02750)",
     .parameters = {Parameter::integer("bits", "4", 1, 16, {2}, "bits a code"),
                    Parameter::integer("k_bits", "0", 0, 16, {8}, "bits a code of K; 0: as `bits`"),
                    Parameter::integer("v_bits", "0", 0, 16, {3}, "bits a code of V; 0: as `bits`"),
                    Parameter::integer("group", "32", 8, 256, {8}, "tokens under one scale of a channel"),
                    residual_parameter("128"),
                    Parameter::choice("k_axis", {"channel", "token"}, "what K's scales are for"),
                    read_parameter(), rotate_parameter()}},
    make};

}  // namespace kv::codec
