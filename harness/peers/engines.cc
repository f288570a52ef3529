#include "harness/peers/engines.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <stdexcept>

#include "harness/io/json.h"
#include "harness/io/mapped_file.h"
#include "harness/io/model_files.h"
#include "harness/io/paths.h"
#include "harness/io/suggestion.h"
#include "harness/io/text.h"
#include "variants/cache/spec.h"

namespace kv::peers {
namespace {

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

// True if every parameter has its default, but for those that an engine chooses or does not know.
bool is_plain(const Stage& stage, const Entry& entry, std::initializer_list<std::string_view> free = {}) {
  return std::ranges::all_of(entry.parameters, [&](const Parameter& parameter) {
    return is_one_of(parameter.name, free) ||
           stage.values.at(std::string(parameter.name)) == parameter.fallback;
  });
}

bool keeps_and_reads_all(const Spec& spec) {
  return spec.retention.name == "full" && is_plain(spec.retention, retention_of(spec)) &&
         spec.selection.name == "all";
}

constexpr std::string_view kBlocks[] = {"q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"};

bool is_blocks(std::string_view type) { return std::ranges::find(kBlocks, type) != std::end(kBlocks); }

// A codec's type as ggml calls it, and whether its rows are rotated; an empty type: ggml has none.
struct GgmlType {
  std::string name;
  bool is_quantised = false, is_rotated = false;
};

GgmlType ggml_type(const std::string& codec) {
  const Spec spec = parse_spec("contiguous/" + codec);
  const std::string& name = spec.codec.name;
  if (is_one_of(name, {"f32", "f16", "bf16"})) return {is_plain(spec.codec, codec_of(spec)) ? name : ""};
  if (!is_blocks(name) || !is_plain(spec.codec, codec_of(spec), {"read", "arithmetic", "rotate"})) return {};
  return {name, true, spec.codec.text("rotate") == "hadamard"};
}

// Source: common/arg.cpp (types), src/llama-kv-cache.cpp (quantised K and V are rotated unless the variable says no).
std::string llama_cpp(const Spec& spec) {
  const bool is_split = spec.codec.name == "split";
  if (spec.placement.name != "contiguous" || !keeps_and_reads_all(spec) ||
      (is_split && !is_plain(spec.codec, codec_of(spec), {"k", "v", "read"})))
    return {};
  const std::string both = spec.stages().codec;
  const GgmlType k = ggml_type(is_split ? spec.codec.text("k") : both);
  const GgmlType v = ggml_type(is_split ? spec.codec.text("v") : both);
  const bool rotates = k.is_rotated || v.is_rotated,
             plain = (k.is_quantised && !k.is_rotated) || (v.is_quantised && !v.is_rotated);
  if (k.name.empty() || v.name.empty() || (rotates && plain)) return {};
  return (plain ? "LLAMA_ATTN_ROT_DISABLE=1 " : "") + ("llama-server -ctk " + k.name) + " -ctv " + v.name +
         (v.is_quantised ? " -fa on" : "");
}

// Source: vllm/config/cache.py (types), triton_reshape_and_cache_flash.py (a scale per token and head).
std::string vllm(const Spec& spec) {
  if (spec.placement.name != "paged" ||
      !is_plain(spec.placement, placement_of(spec), {"block", "pool", "segment"}) ||
      !keeps_and_reads_all(spec))
    return {};
  const Stage& codec = spec.codec;
  std::string type;
  if (is_plain(codec, codec_of(spec), {"read"}))
    type = codec.name == "f16"    ? "float16"
           : codec.name == "bf16" ? "bfloat16"
           : codec.name == "fp8"  ? "fp8_per_token_head"
                                  : "";
  if (codec.name == "token" && codec.text("mode") == "symmetric" && codec.text("bits") == "8" &&
      is_plain(codec, codec_of(spec), {"read", "mode"}))
    type = "int8_per_token_head";
  return type.empty()
             ? ""
             : "vllm serve --kv-cache-dtype " + type + " --block-size " + spec.placement.text("block");
}

// Source: transformers/cache_utils.py; optimum-quanto's grouped.py (axis -1 groups tokens of a channel, 0 channels of a token).
std::string transformers(const Spec& spec) {
  const Stage& codec = spec.codec;
  if (!keeps_and_reads_all(spec) || !is_one_of(spec.placement.name, {"contiguous", "concat"}) ||
      !is_plain(spec.placement, placement_of(spec)))
    return {};
  if (is_one_of(codec.name, {"f32", "f16", "bf16"}) && is_plain(codec, codec_of(spec)))
    return std::string("generate(cache_implementation=\"") +
           (spec.placement.name == "concat" ? "dynamic" : "static") + "\")";
  if (codec.name != "kivi" || !is_one_of(codec.text("bits"), {"2", "4"}) ||
      !is_plain(codec, codec_of(spec), {"bits", "group", "residual", "read"}))
    return {};
  return "generate(cache_implementation=\"quantized\", cache_config={\"backend\": \"quanto\", \"nbits\": " +
         codec.text("bits") +
         ", \"axis_key\": -1, \"axis_value\": 0, \"q_group_size\": " + codec.text("group") +
         ", \"residual_length\": " + codec.text("residual") + "})";
}

// Source: kvpress/presses; `tokens` are those of the prompt.
std::string kvpress(const Spec& spec) {
  const Stage& kept = spec.retention;
  if (!is_one_of(kept.name, {"snapkv", "pyramid", "ada", "expected"}) || spec.selection.name != "all" ||
      !is_one_of(spec.codec.name, {"f32", "f16", "bf16"}) || !is_plain(spec.codec, codec_of(spec)) ||
      !is_plain(
          kept, retention_of(spec),
          {"budget", "window", "kernel", "beta", "floor", "sinks", "future", "layer", "layers", "step"}))
    return {};
  const std::string& budget = kept.text("budget");
  const std::string ratio =
      "(compression_ratio=1 - " + budget + (budget.find('.') == budget.npos ? " / tokens" : "");
  if (kept.name == "expected")
    return "ExpectedAttentionPress" + ratio + ", n_sink=" + kept.text("sinks") +
           ", n_future_positions=" + kept.text("future") + ")";
  const std::string snap =
      ratio + ", window_size=" + kept.text("window") + ", kernel_size=" + kept.text("kernel");
  if (kept.name == "pyramid") return "PyramidKVPress" + snap + ", beta=" + kept.text("beta") + ")";
  if (kept.name == "ada")
    return "AdaKVPress(SnapKVPress" + snap + "), alpha_safeguard=" + kept.text("floor") + ")";
  return "SnapKVPress" + snap + ")";
}

constexpr std::array kEngines{
    Engine{"llama.cpp", "llama-cpp-python 0.3.36",
           "contiguous; f32, f16, bf16 and ggml's blocks, the same or other ones for K and V; it rotates "
           "heads of a multiple of 64",
           llama_cpp},
    Engine{"vLLM", "0.33.0",
           "paged; f16, bf16, fp8 (whose scale is no power of two there) and 8-bit symmetric codes per token",
           vllm},
    Engine{"transformers", "5.24.0",
           "contiguous or concat; floats, and kivi of 2 or 4 bits (whose scales of V are per group of "
           "channels there)",
           transformers},
    Engine{"kvpress", "0.5.5", "snapkv, pyramid, ada and expected over floats, once after the prompt",
           kvpress},
};

struct ArmParameter {
  std::string_view name;
  std::vector<std::string_view> values;  // the first is the default
};

// Parameters of the engines that run whole. Source: llama.cpp's common/arg.cpp.
const std::map<std::string_view, std::vector<ArmParameter>>& arm_parameters() {
  static const std::vector<std::string_view> types = [] {
    std::vector<std::string_view> all{"f16", "f32", "bf16"};
    all.insert(all.end(), std::begin(kBlocks), std::end(kBlocks));
    return all;
  }();
  static const std::map<std::string_view, std::vector<ArmParameter>> all{
      {"llama.cpp", {{"k", types}, {"v", types}, {"fa", {"on", "off"}}, {"rotate", {"on", "off"}}}}};
  return all;
}

// One "key=value" of an arm's parentheses.
void set_value(std::string_view pair, const std::vector<ArmParameter>& known, EngineArm& arm) {
  const size_t equals = std::min(pair.find('='), pair.size());
  const std::string_view key = pair.substr(0, equals), value = pair.substr(std::min(equals + 1, pair.size()));
  std::vector<std::string_view> keys;
  for (const ArmParameter& p : known) keys.push_back(p.name);
  const auto found = std::ranges::find(known, key, &ArmParameter::name);
  if (found == known.end())
    throw std::invalid_argument(arm.engine + " has no parameter '" + std::string(key) + "'" +
                                io::known_names(key, keys));
  if (std::ranges::find(found->values, value) == found->values.end())
    throw std::invalid_argument(arm.engine + " cannot have " + std::string(key) + "=" + std::string(value) +
                                io::known_names(value, found->values));
  arm.values[std::string(key)] = value;
}

}  // namespace

EngineArm parse_arm(std::string_view text) {
  const size_t open = std::min(text.find('('), text.size());
  EngineArm arm{std::string(text.substr(0, open)), {}};
  const auto engine = arm_parameters().find(arm.engine);
  if (engine == arm_parameters().end()) {
    std::vector<std::string_view> names;
    for (const auto& [name, _] : arm_parameters()) names.push_back(name);
    throw std::invalid_argument("'" + arm.engine + "' does not run whole" +
                                io::known_names(arm.engine, names));
  }
  for (const ArmParameter& p : engine->second) arm.values[std::string(p.name)] = p.values.front();
  if (open < text.size() && text.back() != ')')
    throw std::invalid_argument("'" + std::string(text) + "' lacks ')' at its end");
  for (size_t at = open + 1; at + 1 < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size() - 1);
    set_value(text.substr(at, end - at), engine->second, arm);
    at = end + 1;
  }
  if (arm.values["fa"] == "off" && is_blocks(arm.values["v"]))
    throw std::invalid_argument(arm.engine + " has v=" + arm.values["v"] + " with fa=on alone");
  return arm;
}

std::string EngineArm::text() const {
  std::string inside;
  for (const ArmParameter& p : arm_parameters().at(engine)) {
    const std::string& value = values.at(std::string(p.name));
    if (p.name == "k" || p.name == "v" || value != p.values.front())
      inside += (inside.empty() ? "" : ",") + std::string(p.name) + "=" + value;
  }
  return engine + "(" + inside + ")";
}

Spec EngineArm::cache(int head_dim) const {
  const auto codec = [&](const char* side) {
    const std::string& type = values.at(side);
    const bool rotated = is_blocks(type) && values.at("rotate") == "on" && head_dim % 64 == 0;
    return type + (rotated ? "(rotate=hadamard)" : "");
  };
  const std::string k = codec("k"), v = codec("v");
  return parse_spec("contiguous/" + (k == v ? k : "split(k=" + k + ",v=" + v + ")"));
}

std::filesystem::path gguf_of(const std::string& model) {
  const std::filesystem::path place = io::find_model(model), home = io::project_home();
  if (io::is_gguf(place)) return place;
  const std::filesystem::path list = home / "harness" / "model" / "model_packages.json";
  const nlohmann::json all = io::parse_json(io::read_text(list), list);
  const auto package = all.find(place.string());
  return package == all.end() ? std::filesystem::path()
                              : home / ".models" / place / package->at("file").get<std::string>();
}

std::span<const Engine> engines() { return kEngines; }

const Engine& engine_named(std::string_view name) {
  const auto found = std::ranges::find(kEngines, name, &Engine::name);
  if (found != kEngines.end()) return *found;
  throw std::invalid_argument("--for: engine '" + std::string(name) + "' is unknown; there are " +
                              io::joined_names(kEngines));
}

std::string command_of(const Engine& engine, const LayerSpecs& specs) {
  return specs.is_one() ? engine.command(specs.fallback) : "";
}

std::string commands_of(const LayerSpecs& specs) {
  std::string text;
  for (const Engine& engine : kEngines) {
    const std::string command = command_of(engine, specs);
    if (!command.empty()) text += (text.empty() ? "" : "; ") + std::string(engine.name) + ": " + command;
  }
  return text;
}

}  // namespace kv::peers
