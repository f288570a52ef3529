// A row of a table of results: values by column. A value that nobody set is absent, and a file has nothing for it.
//
//   row[kStepP50Us] = median;   if (row[kRatioP50]) …   row[kStatus] = Status::kOk;
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>

#include "harness/results/column.h"

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
  // Of a column that is known by its name alone, as an error metric's. Throws std::logic_error for one of another type.
  Number& number(std::string_view name) { return get<Number>(name); }
  const Number& number(std::string_view name) const { return get<Number>(name); }

  // The value as a CSV file has it; empty where it is absent.
  std::string text(const AnyColumn& column) const;
  // The value as a number; absent for a text.
  Number number(const AnyColumn& column) const;
  // Sets the value that a file's text stands for; false where it stands for none of the column's type.
  bool read(const AnyColumn& column, const std::string& text);
  // Takes the other row's value of each of these columns.
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

  std::map<std::string_view, Value> values_;  // by the column's name, which lasts as long as the program
};

}  // namespace kv::results
