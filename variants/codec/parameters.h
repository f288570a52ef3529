// What the quantised codecs' parameters have in common.
#pragma once

#include "variants/core/codec.h"
#include "variants/core/entry.h"

namespace kv {

// A codec with the defaults of its parameters, for another that is made of it.
inline Codec default_codec(const CodecEntry& entry) {
  Stage defaults{std::string(entry.name), {}};
  for (const Parameter& p : entry.parameters) defaults.values.emplace(p.name, p.fallback);
  return entry.make(defaults);
}

// Two arms of every quantised codec: whether "quantised is slower" comes from the codes or from the way they
// are read.
inline Parameter read_parameter() {
  return Parameter::choice("read", {"fused", "copy"},
                           "decode inside attention, or all rows to an f32 copy first");
}
// Codecs are compared with equally many raw rows: a few of them hide most of the error of 2 bits.
inline Parameter residual_parameter(std::string_view fallback) {
  return Parameter::integer("residual", fallback, 0, 4096, {0, 40}, "newest rows kept raw (f16), at least");
}
// Of codes whose step is set by the largest channel.
inline Parameter rotate_parameter() {
  return Parameter::choice("rotate", {"none", "hadamard"},
                           "spread large channels of K and V over all before they are encoded");
}
// Of codes whose step is set by the largest channel as well, where what is large is alike in all keys.
inline Parameter k_mean_parameter() {
  return Parameter::choice("k_mean", {"kept", "removed"},
                           "subtract the mean of a head's first 32 keys from all of them (on a CPU)");
}
inline int64_t mean_rows(const Stage& stage) { return stage.text("k_mean") == "removed" ? 32 : 0; }
inline bool stores_hadamard(const Stage& stage) { return stage.text("rotate") == "hadamard"; }
inline int64_t residual_rows(const Stage& stage) { return stage.integer("residual"); }

// Two arms of codes in blocks: what 8-bit queries and weights save, and what error they add.
inline Parameter arithmetic_parameter() {
  return Parameter::choice("arithmetic", {"exact", "int8"},
                           "queries and weights of 16 bits where they meet codes, or of 8 (decode on a CPU)");
}
inline Arithmetic arithmetic_of(const Stage& stage) {
  return stage.text("arithmetic") == "int8" ? Arithmetic::kInt8 : Arithmetic::kExact;
}

inline bool reads_copy(const Stage& stage) { return stage.text("read") == "copy"; }

}  // namespace kv
