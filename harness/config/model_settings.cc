#include "harness/config/model_settings.h"

#include <stdexcept>

#include "harness/io/json.h"

namespace kv::config {

using nlohmann::json;

void ModelSettings::refuse(const std::string& what) const {
  throw std::invalid_argument(path_ + ": " + what);
}

void ModelSettings::refuse(const std::string& key, const std::string& expected) const {
  const auto found = object_.find(key);
  const auto name = names_.find(key);
  refuse("'" + (name == names_.end() ? key : name->second) + "' " +
         (found == object_.end() ? "is missing; expected " : "is " + io::shown(*found) + ", expected ") +
         expected);
}

void ModelSettings::set_defaults(const json& defaults) {
  for (const auto& [key, value] : defaults.items()) {
    if (!object_.contains(key)) object_[key] = value;
  }
}

void ModelSettings::rename(const std::string& other, const std::string& key) {
  if (object_.contains(key)) return;
  names_[key] = other;
  if (object_.contains(other)) object_[key] = object_[other];
}

bool ModelSettings::is_off(const std::string& key) const {
  if (!has(key)) return true;
  const json& value = object_[key];
  return value == false || value == 0 || value == "" || value.empty();
}

double ModelSettings::number(const std::string& key, double fallback) const {
  if (!has(key)) return fallback;
  if (!object_[key].is_number() || !(object_[key].get<double>() > 0)) refuse(key, "a positive number");
  return object_[key].get<double>();
}

int ModelSettings::count(const std::string& key) const { return static_cast<int>(count(key, kMostCount)); }

int64_t ModelSettings::count(const std::string& key, int64_t most) const {
  if (!has(key) || !object_[key].is_number_integer() || object_[key].get<int64_t>() < 1 ||
      object_[key].get<int64_t>() > most) {
    refuse(key, "a positive integer");
  }
  return object_[key].get<int64_t>();
}

bool ModelSettings::flag(const std::string& key, bool fallback) const {
  if (!has(key)) return fallback;
  if (!object_[key].is_boolean()) refuse(key, "true or false");
  return object_[key].get<bool>();
}

std::string ModelSettings::text(const std::string& key, const std::string& fallback) const {
  if (!has(key)) return fallback;
  if (!object_[key].is_string()) refuse(key, "text");
  return object_[key].get<std::string>();
}

const json& ModelSettings::list(const std::string& key) const {
  if (!has(key) || !object_[key].is_array()) refuse(key, "a list");
  return object_[key];
}

ModelSettings ModelSettings::inner(const std::string& key) const {
  if (!has(key)) return {json::object(), path_};
  if (!object_[key].is_object()) refuse(key, "an object");
  return {object_[key], path_};
}

}  // namespace kv::config
