// Spec strings: `placement['/'codec]['/'retention]['/'selection]`, a stage is `name` or `name(key=value,…)`.
//
// Stages that are left out are `contiguous/f32/full/all`. The canonical form leaves out every stage and parameter with its
// default value, except the placement's name; parse(print(s)) == s.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "variants/core/entry.h"

namespace kv {

// The canonical text of each stage.
struct StageTexts {
  std::string placement, codec, retention, selection;
  friend bool operator==(const StageTexts&, const StageTexts&) = default;
};

struct Spec {
  Stage placement, codec, retention, selection;

  // Every stage, also those that print() leaves out because they are the defaults.
  StageTexts stages() const;
  // The canonical form: the key in every CSV, benchmark name and chart.
  std::string print() const;
  friend bool operator==(const Spec&, const Spec&) = default;
};

// Throws std::invalid_argument with the text, a caret under the mistake, what is known, and the nearest name.
Spec parse_spec(std::string_view text);
// The same for the spec that begins at `at` of a longer text; `at` is then behind it: at the end, a space or a '+'.
Spec parse_spec_at(std::string_view text, size_t& at);
// Throws std::invalid_argument with what is wrong, the text and a caret under its character `at`.
[[noreturn]] void fail_in_spec(std::string_view text, size_t at, const std::string& what);

// The entries that a (checked) spec names.
const PlacementEntry& placement_of(const Spec& spec);
const CodecEntry& codec_of(const Spec& spec);
const RetentionEntry& retention_of(const Spec& spec);
const SelectionEntry& selection_of(const Spec& spec);
// All stages are the defaults.
Spec default_spec();

}  // namespace kv
