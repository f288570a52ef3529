// Small models of each family, as family_models.py made them for transformers: the config.json and the shapes of the
// tensors from families/cases.json, weights by the rule that the script states, and the logits that transformers gave.
#pragma once

#include <numeric>

#include "harness/io/safetensors.h"
#include "tests/harness/model/tiny_hugging_face.h"

namespace kv::test {

inline std::string families_file(const std::string& name) {
  return KVLAB_SOURCE_DIR "/tests/harness/model/families/" + name;
}

inline nlohmann::json family_cases() { return nlohmann::json::parse(read_all(families_file("cases.json"))); }

// splitmix64 over the FNV-1a hash of the name, uniform around a centre.
inline std::vector<double> family_weights(const std::string& name, const std::vector<int64_t>& shape) {
  uint64_t state = 0xcbf29ce484222325;
  for (const char c : name) state = (state ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  const auto ends = [&](const char* with) { return name.ends_with(with); };
  const bool wide = ends("embed_tokens.weight") || ends("wte.weight") || ends("wpe.weight") || ends("sinks");
  const double centre = shape.size() == 1 && ends("weight") ? 1 : 0, spread = wide ? 1.0 : 0.3;
  std::vector<double> values;
  const int64_t n = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  for (int64_t i = 0; i < n; ++i) {
    uint64_t x = state += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    values.push_back(centre + spread * (static_cast<double>((x ^ (x >> 31)) >> 40) / 0x1p23 - 1));
  }
  return values;
}

inline TinyHuggingFace family_model(const std::string& name) {
  const nlohmann::json found = family_cases().at(name);
  TinyHuggingFace tiny;
  tiny.config = found.at("config");
  tiny.tensors.clear();
  const nlohmann::json& shapes = found.at("tensors");
  for (const auto& [tensor, shape] : shapes.items()) {
    const auto sides = shape.get<std::vector<int64_t>>();
    tiny.tensors[tensor] = {sides, family_weights(tensor, sides)};
  }
  return tiny;
}

// [tokens, vocabulary]
inline std::vector<float> family_logits(const std::string& name) {
  const io::SafetensorsFile file(families_file("logits.safetensors"));
  const auto& tensor = file.tensor(name);
  std::vector<float> logits(static_cast<size_t>(tensor.elements()));
  io::read_f32(tensor, 0, tensor.elements(), logits.data());
  return logits;
}

inline std::vector<int> family_tokens() {
  std::vector<int> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(i * i % 29);
  return ids;
}

}  // namespace kv::test
