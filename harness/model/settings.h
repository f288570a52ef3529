// A model's config.json, whose keys are read with their checks.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace kv::model {

// The object in a file. Throws std::invalid_argument where there is none.
nlohmann::json read_json_object(const std::string& path);

// Every function throws std::invalid_argument, naming the file, the key, what it is and what would be right.
class Settings {
 public:
  Settings(nlohmann::json object, std::string path) : object_(std::move(object)), path_(std::move(path)) {}

  [[noreturn]] void refuse(const std::string& what) const;
  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const;

  // Sets keys that the file lacks; a null in it stays.
  void set_defaults(const nlohmann::json& defaults);
  void set(int64_t value, const std::string& key) { object_[key] = value; }
  // Renames the file's key `other` to `key` from here on; messages keep the file's name.
  void rename(const std::string& other, const std::string& key);

  bool has(const std::string& key) const { return object_.contains(key) && !object_[key].is_null(); }
  double number(const std::string& key, double fallback) const;  // positive
  int count(const std::string& key) const;                       // a positive integer
  bool flag(const std::string& key, bool fallback) const;
  std::string text(const std::string& key, const std::string& fallback) const;
  Settings inner(const std::string& key) const;  // an object; empty where it is missing
  const std::string& path() const { return path_; }

 private:
  nlohmann::json object_;
  std::string path_;
  std::map<std::string, std::string> names_;  // in the file
};

}  // namespace kv::model
