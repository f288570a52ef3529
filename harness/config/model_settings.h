// A model's config.json, whose keys are read with their checks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace kv::config {

// Every function throws std::invalid_argument, naming the file, the key, what it is and what would be right. Keys that were asked
// for are recorded, by all copies together.
class ModelSettings {
 public:
  ModelSettings(nlohmann::json object, std::string path)
      : object_(std::move(object)), path_(std::move(path)) {}

  [[noreturn]] void refuse(const std::string& what) const;
  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const;

  // Sets keys that the file lacks; a null in it stays.
  void set_defaults(const nlohmann::json& defaults);
  void set(int64_t value, const std::string& key);
  // Renames the file's key `other` to `key`, unless that is there as well; messages keep the file's name.
  void rename(const std::string& other, const std::string& key);

  bool has(const std::string& key) const;
  // True if the key is missing, or its value says that the model has no such thing: null, false, 0 or empty.
  bool is_off(const std::string& key) const;
  double number(const std::string& key, double fallback) const;  // positive
  static constexpr int64_t kMostCount = 1 << 24;
  int count(const std::string& key) const;  // a positive integer
  int64_t count(const std::string& key, int64_t most) const;
  int count_or_zero(const std::string& key) const { return is_off(key) ? 0 : count(key); }
  bool flag(const std::string& key, bool fallback) const;
  std::string text(const std::string& key, const std::string& fallback) const;
  const nlohmann::json& list(const std::string& key) const;
  ModelSettings inner(const std::string& key) const;  // an object; empty where it is missing
  // Throws for a key that is not off, that nobody asked for and that changes logits for all that is known (io/json.h).
  void refuse_unread() const;
  const nlohmann::json& object() const { return object_; }
  const std::string& path() const { return path_; }

 private:
  void refuse_unread(const nlohmann::json& object, const std::string& prefix) const;

  nlohmann::json object_;
  std::string path_;
  std::map<std::string, std::string> names_;  // in the file
  std::string prefix_ = {};                   // an inner object's: "rope_scaling."
  std::shared_ptr<std::set<std::string>> asked_ = std::make_shared<std::set<std::string>>();
};

}  // namespace kv::config
