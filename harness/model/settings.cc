#include "harness/model/settings.h"

#include <filesystem>
#include <stdexcept>

#include "harness/io/json.h"
#include "harness/io/mapped_file.h"

namespace kv::model {

using nlohmann::json;

json read_json_object(const std::string& path) {
  if (!std::filesystem::exists(path))
    throw std::invalid_argument("cannot read " + path + "; a Hugging Face model folder has it");
  json object = io::parse_json(io::read_text(path), path);
  if (!object.is_object()) throw std::invalid_argument(path + ": not a JSON object");
  return object;
}

void Settings::refuse(const std::string& what) const { throw std::invalid_argument(path_ + ": " + what); }

void Settings::refuse(const std::string& key, const std::string& expected) const {
  const auto found = object_.find(key);
  const auto name = names_.find(key);
  refuse("'" + (name == names_.end() ? key : name->second) + "' " +
         (found == object_.end() ? "is missing; expected " : "is " + io::shown(*found) + ", expected ") +
         expected);
}

void Settings::set_defaults(const json& defaults) {
  for (const auto& [key, value] : defaults.items()) {
    if (!object_.contains(key)) object_[key] = value;
  }
}

void Settings::rename(const std::string& other, const std::string& key) {
  names_[key] = other;
  if (object_.contains(other)) object_[key] = object_[other];
}

double Settings::number(const std::string& key, double fallback) const {
  if (!has(key)) return fallback;
  if (!object_[key].is_number() || !(object_[key].get<double>() > 0)) refuse(key, "a positive number");
  return object_[key].get<double>();
}

int Settings::count(const std::string& key) const {
  constexpr int64_t kMost = 1 << 24;
  if (!has(key) || !object_[key].is_number_integer() || object_[key].get<int64_t>() < 1 ||
      object_[key].get<int64_t>() > kMost) {
    refuse(key, "a positive integer");
  }
  return object_[key].get<int>();
}

bool Settings::flag(const std::string& key, bool fallback) const {
  if (!has(key)) return fallback;
  if (!object_[key].is_boolean()) refuse(key, "true or false");
  return object_[key].get<bool>();
}

std::string Settings::text(const std::string& key, const std::string& fallback) const {
  if (!has(key)) return fallback;
  if (!object_[key].is_string()) refuse(key, "text");
  return object_[key].get<std::string>();
}

Settings Settings::inner(const std::string& key) const {
  if (!has(key)) return {json::object(), path_};
  if (!object_[key].is_object()) refuse(key, "an object");
  return {object_[key], path_};
}

}  // namespace kv::model
