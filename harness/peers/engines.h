// Commands that give a serving engine the cache of a spec, for those that it can express; and whole engines that run with one of
// their own caches beside kvlab's.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "variants/model_cache/layer_specs.h"

namespace kv::peers {

struct Engine {
  std::string_view name, version;            // the version whose sources the command was checked against
  std::string_view can;                      // a line: caches that it can express
  std::string (*command)(const Spec& spec);  // empty: it cannot express the cache
};

std::span<const Engine> engines();
// Throws std::invalid_argument with the names for one that is not there.
const Engine& engine_named(std::string_view name);

// The engine's command; empty where it cannot express the cache, or layers have specs of their own.
std::string command_of(const Engine& engine, const LayerSpecs& specs);
// All engines' commands as "ENGINE: COMMAND; …"; empty where none can express the cache.
std::string commands_of(const LayerSpecs& specs);

// A whole engine with one of its caches, as "llama.cpp(k=q8_0,v=q4_0,fa=on,rotate=off)".
struct EngineArm {
  std::string engine;
  std::map<std::string, std::string> values;  // of every parameter

  std::string text() const;  // K, V, and what is not the default
  // kvlab's cache of the same bits. llama.cpp rotates quantised heads of a multiple of 64 values.
  Spec cache(int head_dim) const;
};
// Throws std::invalid_argument with what is known.
EngineArm parse_arm(std::string_view text);

// The GGUF file that kvlab reads a model from, which engines read, too; empty for a model without one.
std::filesystem::path gguf_of(const std::string& model);

}  // namespace kv::peers
