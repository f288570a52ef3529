// A row of a results table: values by column. An unset value is absent and leaves its field in the file empty.
//
//   row[kStepP50Us] = median;   if (row[kRatioP50]) …   row[kStatus] = Status::kOk;
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>

#include "harness/results/estimate.h"

namespace kv::results {

class Row {
 public:
  template <class T>
  T& operator[](const Column<T>& column) {
    return get<T>(column.name);
  }
  template <class T>
  const T& operator[](const Column<T>& column) const {
    return get<T>(column.name);
  }
  // `interval` has a low and a high end.
  void set(const Estimate& of, const Number& value, const auto& interval) {
    (*this)[of.value()] = value;
    (*this)[of.low] = interval.low;
    (*this)[of.high] = interval.high;
  }
  // A column known by name alone, such as an error metric's. Throws std::logic_error for one of another type.
  Number& number(std::string_view name) { return get<Number>(name); }
  const Number& number(std::string_view name) const { return get<Number>(name); }

  // The value's text in a CSV file; empty if absent.
  std::string text(const AnyColumn& column) const;
  // The value as a number; absent for text.
  Number number(const AnyColumn& column) const;
  // Sets the value from a file's text; returns false if the text does not fit the column's type.
  bool read(const AnyColumn& column, const std::string& text);
  // The name of a column that has a value here and is none of these; empty if there is none.
  std::string_view value_outside(const ColumnList& columns) const;
  // Takes all values of the other row.
  void add(const Row& other) {
    for (const auto& [name, value] : other.values_) values_[name] = value;
  }
  // Copies the other row's values of these columns.
  void copy(const Row& from, const ColumnList& columns);

 private:
  using Value = std::variant<std::string, Integer, Number, Status>;

  template <class T>
  T& get(std::string_view name) {
    auto found = values_.find(name);
    if (found == values_.end()) found = values_.emplace(name, T{}).first;
    return held<T>(found->second, name);
  }
  template <class T>
  const T& get(std::string_view name) const {
    static const T absent{};
    const auto found = values_.find(name);
    return found == values_.end() ? absent : held<T>(found->second, name);
  }
  template <class T, class V>
  static auto& held(V& value, std::string_view name) {
    if (auto* of_type = std::get_if<T>(&value)) return *of_type;
    throw std::logic_error("the column " + std::string(name) + " has another type");
  }

  std::map<std::string_view, Value> values_;  // by column name, which lives as long as the program
};

}  // namespace kv::results
