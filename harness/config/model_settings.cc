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
    if (object_.contains(key)) continue;
    object_[key] = value;
    asked_->insert(key);  // no key of the file
  }
}

void ModelSettings::set(int64_t value, const std::string& key) {
  object_[key] = value;
  asked_->insert(key);
}

void ModelSettings::rename(const std::string& other, const std::string& key) {
  if (object_.contains(key)) {
    if (object_.value(other, json()) == object_[key]) object_.erase(other);
    return;
  }
  names_[key] = other;
  if (!object_.contains(other)) return;
  object_[key] = object_[other];
  object_.erase(other);
}

bool ModelSettings::has(const std::string& key) const {
  asked_->insert(prefix_ + key);
  return object_.contains(key) && !object_[key].is_null();
}

namespace {

bool says_no(const json& value) { return value == false || value == 0 || value == "" || value.empty(); }

}  // namespace

bool ModelSettings::is_off(const std::string& key) const {
  return !object_.contains(key) || says_no(object_[key]);
}

void ModelSettings::refuse_unread(const json& object, const std::string& prefix) const {
  for (const auto& [key, value] : object.items()) {
    const std::string name = prefix + key, inside = name + ".";
    if (asked_->contains(name)) {
      const auto first = asked_->lower_bound(inside);
      if (value.is_object() && first != asked_->end() && first->starts_with(inside))
        refuse_unread(value, inside);
    } else if (!says_no(value) && !io::changes_nothing("config.json", name, text("model_type", ""))) {
      refuse("'" + name + "' is " + io::shown(value) +
             ", which kvlab does not read for this model_type; remove it if it does not change the logits");
    }
  }
}

void ModelSettings::refuse_unread() const { refuse_unread(object_, prefix_); }

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
  ModelSettings inner(json::object(), path_);
  inner.prefix_ = prefix_ + key + ".";
  inner.asked_ = asked_;
  if (!has(key)) return inner;
  if (!object_[key].is_object()) refuse(key, "an object");
  inner.object_ = object_[key];
  return inner;
}

}  // namespace kv::config
