// A config's vocabulary: keys of its tables, and the axes that a sweep multiplies. Each is declared once, by its
// experiment or its sharers. Reading, checking and description follow from the declaration alone.
#pragma once

#include <any>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/config/section.h"
#include "harness/results/cell_columns.h"
#include "harness/results/row.h"

namespace kv::config {

class AnyKey;
template <class T>
class Axis;

// Values of keys in a config.
class Settings {
 public:
  template <class Key>
  const typename Key::Value& operator[](const Key& key) const {
    const auto found = values_.find(&key);
    return found == values_.end() ? key.fallback : std::any_cast<const typename Key::Value&>(found->second);
  }
  template <class T>
  const std::vector<T>& operator[](const Axis<T>& axis) const {
    return (*this)[axis.values];
  }
  template <class Key>
  void set(const Key& key, typename Key::Value value) {
    values_[&key] = std::move(value);
  }

 private:
  std::map<const AnyKey*, std::any> values_;
};

// The table, shared by all experiments, that may hold the key beside their own tables; kOwn: none.
enum class SharedTable { kSweep, kMeasure, kOwn };

class AnyKey {
 public:
  AnyKey(std::string_view name_, SharedTable table_, std::string_view help_)
      : name(name_), table(table_), help(help_) {}
  virtual ~AnyKey() = default;
  // Overrides the value if the section has the key. Throws std::invalid_argument for a forbidden value.
  virtual void read(Section& section, Settings& settings) const = 0;

  const std::string_view name;
  const SharedTable table;
  const std::string_view help;
};

// Reads the value under a key, or `fallback` without one.
template <class T>
using Reader = std::function<T(Section& section, const std::string& key, const T& fallback)>;

template <class T>
class Key : public AnyKey {
 public:
  using Value = T;
  Key(std::string_view name_, SharedTable table_, T fallback_, Reader<T> reader, std::string_view help_)
      : AnyKey(name_, table_, help_), fallback(std::move(fallback_)), reader_(std::move(reader)) {}
  void read(Section& section, Settings& settings) const override {
    settings.set(*this, reader_(section, std::string(name), settings[*this]));
  }

  const T fallback;

 private:
  const Reader<T> reader_;
};

// Readers, each with the values that it allows.
Reader<int64_t> tokens(int64_t least, int64_t most);
Reader<int64_t> count(int64_t least, int64_t most);
Reader<double> number(double least, double most);
Reader<bool> flag();
Reader<std::string> choice(std::vector<std::string> known);
// Text that passes `check`, which throws std::invalid_argument and may be null.
Reader<std::string> text(void (*check)(const std::string& text) = nullptr);
// One or several values, each once.
Reader<std::vector<int64_t>> token_list();
Reader<std::vector<double>> number_list(double least, double most);
Reader<std::vector<std::string>> text_list(void (*check)(const std::string& text) = nullptr);

// An axis of a sweep: a key with several values and its column. Each value makes sweep points.
class AnyAxis {
 public:
  AnyAxis(const results::AnyColumn& column_, std::string_view example_)
      : column(column_), example(example_) {}
  virtual ~AnyAxis() = default;
  virtual const AnyKey& key() const = 0;
  // Combines each of the points with each of the axis's values.
  virtual std::vector<results::Row> multiplied(const std::vector<results::Row>& points,
                                               const Settings& settings) const = 0;
  bool has_values(const Settings& settings) const { return !multiplied({{}}, settings).empty(); }

  const results::AnyColumn& column;
  const std::string_view example;  // example values, for messages; empty: the axis has a default
};

// T: int64_t or std::string.
template <class T>
class Axis : public AnyAxis {
 public:
  using Values = std::vector<T>;
  using Column =
      results::Column<std::conditional_t<std::is_same_v<T, std::string>, std::string, results::Integer>>;

  Axis(const Column& column_, std::string_view name, SharedTable table, Values fallback,
       Reader<Values> reader, std::string_view help, std::string_view example_ = "")
      : AnyAxis(column_, example_),
        values(name, table, std::move(fallback), std::move(reader), help),
        typed_(column_) {}
  const AnyKey& key() const override { return values; }
  std::vector<results::Row> multiplied(const std::vector<results::Row>& points,
                                       const Settings& settings) const override {
    std::vector<results::Row> all;
    for (const results::Row& point : points) {
      for (const T& value : settings[values]) (all.emplace_back(point))[typed_] = value;
    }
    return all;
  }

  const Key<Values> values;

 private:
  const Column& typed_;
};

extern const Axis<int64_t> kBatch, kSeqLen;
inline constexpr std::array<const AnyAxis*, 2> kLengthAxes{&kBatch, &kSeqLen};

}  // namespace kv::config
