// kivi: K per channel over groups of tokens, V per token, the newest rows raw (Liu et al. 2024,
// arXiv:2402.02750).
//
// A few channels of K are large for every token. Under a scale per token they set the step of all channels;
// under a scale per channel they only set their own. V has no such channels. k_axis=token and v_axis=channel are
// the other cells of KIVI's table: they change the axis and nothing else (groups and residual stay), so that the
// ratio of two errors is due to the axis alone. A channel has two f16 over `group` tokens and a token two f32 over
// head_dim channels: equally many bytes where head_dim is twice the group.
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

struct SideOfKivi {
  Encoding encoding;
  Interval error;
};

SideOfKivi kivi_side(const std::string& axis, int bits, int group) {
  const bool by_channel = axis == "channel";
  return {.encoding = {.format = by_channel ? Format::kChannel : Format::kToken,
                       .bits = static_cast<uint8_t>(bits),
                       .group = static_cast<uint16_t>(by_channel ? group : 1),
                       .affine = true},
          .error = affine_error(bits, by_channel ? GridSize{group, group} : kWholeRow)};
}

Codec make_kivi(const Stage& stage) {
  const int group = static_cast<int>(stage.integer("group"));
  const SideOfKivi k = kivi_side(stage.text("k_axis"), bits_of(stage, "k_bits"), group);
  const SideOfKivi v = kivi_side(stage.text("v_axis"), bits_of(stage, "v_bits"), group);
  return {.k = k.encoding,
          .v = v.encoding,
          .rows_together = group,
          .residual = residual_rows(stage),
          .first = first_rows(stage),
          .read_copy = reads_copy(stage),
          .k_rotation = rotation_of(stage),
          .v_rotation = rotation_of(stage),
          .k_error = k.error,
          .v_error = v.error};
}

}  // namespace

const CodecEntry kivi{
    {.name = "kivi",
     .help = "K per channel over groups of tokens, V per token, the newest rows raw f16",
     .source = "KIVI (arXiv:2402.02750); its code encodes a residual of K at once and V row by row, here "
               "both go by groups",
     .parameters = {Parameter::integer("bits", "4", 1, 16, {2}, "bits a code"),
                    Parameter::integer("k_bits", "0", 0, 16, {8}, "bits a code of K; 0: as `bits`"),
                    Parameter::integer("v_bits", "0", 0, 16, {3}, "bits a code of V; 0: as `bits`"),
                    Parameter::integer("group", "32", 8, 256, {8}, "tokens under one scale of a channel"),
                    residual_parameter("128"), first_parameter(),
                    Parameter::choice("k_axis", {"channel", "token"}, "what K's scales are for"),
                    Parameter::choice("v_axis", {"token", "channel"}, "what V's scales are for"),
                    read_parameter(), prefill_parameter(), rotate_parameter()}},
    {.make = make_kivi}};

}  // namespace kv::codec
