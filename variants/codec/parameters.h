// Parameters that quantised codecs share.
#pragma once

#include "kernels/format/descriptor.h"
#include "variants/core/codec.h"
#include "variants/core/entry.h"

namespace kv {

// The codec of an entry's default parameters, for another codec that is made of it.
inline Codec default_codec(const CodecEntry& entry) { return entry.make(default_stage(entry)); }
// The same by its text as a spec prints it: "q8_0", "kivi(bits=2)". Any other text is a bug (std::logic_error).
Codec codec_by_text(const std::string& text);

// Two arms of every quantised codec: they tell the cost of codes from the cost of decoding inside attention.
inline Parameter read_parameter() {
  return Parameter::choice("read", {"fused", "copy"},
                           "decode inside attention, or all rows to an f32 copy first")
      .of_both_sides();
}

// Every codec has it; variants/cache/prefill.h.
inline Parameter prefill_parameter() {
  return Parameter::choice("prefill", {"stored", "full"},
                           "a prompt's queries read rows as stored, or as they came (on a CPU)")
      .of_both_sides();
}
inline bool reads_copy(const Stage& stage) { return stage.text("read") == "copy"; }

// Codecs are compared with equally many raw rows: a few of them hide most of the error of 2 bits.
inline Parameter residual_parameter(std::string_view fallback) {
  return Parameter::integer("residual", fallback, 0, 4096, {0, 40}, "newest rows kept raw (f16), at least");
}
inline int64_t residual_rows(const Stage& stage) { return stage.integer("residual"); }
inline Parameter first_parameter() {
  return Parameter::integer("first", "0", 0, 4096, {3}, "first rows kept raw (f16), for good (on a CPU)");
}
inline int64_t first_rows(const Stage& stage) { return stage.integer("first"); }

// For codes whose step is set by the largest channel.
inline Parameter rotate_parameter() {
  return Parameter::choice("rotate", {"none", "hadamard"},
                           "spread large channels of K and V over all before they are encoded");
}
inline Rotation rotation_of(const Stage& stage) {
  return stage.text("rotate") == "hadamard" ? Rotation::kHadamard : Rotation::kNone;
}

// For such codes as well, where the large channels are alike in all keys.
inline Parameter k_mean_parameter() {
  return Parameter::choice("k_mean", {"kept", "removed"},
                           "subtract the mean of a head's first 32 keys from all of them (on a CPU)")
      .of_both_sides();
}
inline int64_t mean_rows(const Stage& stage) { return stage.text("k_mean") == "removed" ? 32 : 0; }

// Two arms of codes in blocks: the time that 8-bit queries and weights save, and the error that they add.
inline Parameter arithmetic_parameter() {
  return Parameter::choice("arithmetic", {"exact", "int8"},
                           "queries and weights of 16 bits where they meet codes, or of 8 (decode on a CPU)")
      .of_both_sides();
}
inline void use_int8_arithmetic(Stage& stage) { stage.values["arithmetic"] = "int8"; }
inline Arithmetic arithmetic_of(const Stage& stage) {
  return stage.text("arithmetic") == "int8" ? Arithmetic::kInt8 : Arithmetic::kExact;
}

// A codec of one encoding for K and V, with the parameters residual, read and rotate.
inline Codec one_encoding(const Stage& stage, const Encoding& side, const Interval& error) {
  return {.k = side,
          .v = side,
          .residual = residual_rows(stage),
          .first = first_rows(stage),
          .read_copy = reads_copy(stage),
          .k_rotation = rotation_of(stage),
          .v_rotation = rotation_of(stage),
          .k_error = error,
          .v_error = error};
}

// The same of ggml's blocks, with the parameter k_mean as well.
inline Codec block_levels(const Stage& stage, Format format, const Interval& error) {
  const auto bits = static_cast<uint8_t>(descriptor_of(format).bits);
  Codec codec = one_encoding(stage, {.format = format, .bits = bits}, error);
  codec.mean_rows = mean_rows(stage);
  return codec;
}
inline std::vector<Parameter> block_level_parameters() {
  return {residual_parameter("0"), first_parameter(),  read_parameter(),
          prefill_parameter(),     rotate_parameter(), k_mean_parameter()};
}

// And of those that attention multiplies as codes, with the parameter arithmetic.
inline Codec block_codes(const Stage& stage, Format format, const Interval& error) {
  Codec codec = block_levels(stage, format, error);
  codec.arithmetic = arithmetic_of(stage);
  return codec;
}
inline std::vector<Parameter> block_code_parameters() {
  std::vector<Parameter> all = block_level_parameters();
  all.insert(all.end() - 1, arithmetic_parameter());
  return all;
}

}  // namespace kv
