#include "variants/model_cache/label.h"

#include <algorithm>

#include "variants/list.h"

namespace kv {
namespace {

// A parameter's words, with {} for its value. All others have their name and value, and only what is no default is said.
struct Words {
  std::string_view parameter, text;
  bool always = false;  // unless it is 0
};
constexpr Words kWords[] = {{"bits", "{}-bit", true},      {"k_bits", "K {}-bit"},
                            {"v_bits", "V {}-bit"},        {"residual", "residual {}", true},
                            {"k", "K {}", true},           {"v", "V {}", true},
                            {"k_axis", "K per {}"},        {"v_axis", "V per {}"},
                            {"k_mean", "K mean {}"},       {"rotate", "{}"},
                            {"positions", "{} positions"}, {"arithmetic", "{}"}};

std::string said_of(const Stage& stage, const Entry& entry, const Stage* around = nullptr);

std::string value_of(const Stage& stage, const Parameter& p) {
  const std::string& value = stage.text(std::string(p.name));
  if (p.kind != Parameter::Kind::kCodec) return value;
  const Spec side = parse_spec("contiguous/" + value);
  return said_of(side.codec, codec_of(side));
}

bool is_given(const Stage& stage, const std::string& key) {
  return stage.values.contains(key) && stage.text(key) != "0";
}

// Numbers of rows that are kept, which all say how much, stand alone, as in "h2o 64+64". Of a stage of the same name as the one
// `around` it only what differs is said.
std::string said_of(const Stage& stage, const Entry& entry, const Stage* around) {
  const bool is_known = around && around->name == stage.name && *around != stage;
  std::string text = is_known ? "" : stage.name;
  bool after_rows = false;
  for (const Parameter& p : entry.parameters) {
    const auto* words = std::ranges::find(kWords, p.name, &Words::parameter);
    const bool rows = p.kind == Parameter::Kind::kRows, known = words != std::end(kWords);
    const std::string value = value_of(stage, p), key(p.name);
    const bool is_usual = is_known                           ? around->text(key) == stage.text(key)
                          : rows || (known && words->always) ? value == "0"
                                                             : value == p.fallback;
    if (is_usual || (key == "bits" && is_given(stage, "k_bits") && is_given(stage, "v_bits"))) continue;
    std::string said = rows ? "{}" : known ? std::string(words->text) : key + " {}";
    std::ranges::replace(said, '_', ' ');
    text += (rows && after_rows ? "+" : text.empty() ? "" : " ") + said.replace(said.find("{}"), 2, value);
    after_rows = rows;
  }
  return text;
}

bool is_float(std::string_view codec) { return codec == "f32" || codec == "f16" || codec == "bf16"; }

// The stages of an exception that differ from those around it.
std::string said_of(const Spec& spec, const Spec* around) {
  const Spec usual = around ? *around : default_spec();
  const bool is_plain =
      spec.retention == usual.retention && spec.selection == usual.selection && is_float(spec.codec.name);
  std::string text;
  const auto say = [&](Stage Spec::*stage, const Entry& entry, bool always) {
    if (!always && spec.*stage == usual.*stage) return;
    text += (text.empty() ? "" : " ") + said_of(spec.*stage, entry, around ? &(usual.*stage) : nullptr);
  };
  say(&Spec::placement, placement_of(spec), !around && is_plain);
  say(&Spec::codec, codec_of(spec), !around || spec == usual);
  say(&Spec::retention, retention_of(spec), false);
  say(&Spec::selection, selection_of(spec), false);
  return text;
}

}  // namespace

std::string label_of(const LayerSpecs& specs) {
  std::string text = said_of(specs.fallback, nullptr);
  for (const LayerException& e : specs.exceptions)
    text += " + " + e.selector() + ": " + said_of(e.spec, &specs.fallback);
  return text;
}

}  // namespace kv
