// A column of a results table, declared once beside the code that fills it. The CSV header, writing, reading, `kvlab
// list columns`, columns.json, charts and claims use this declaration alone.
//
//   inline constexpr auto kBound = TextColumn{"bound", "", "which takes longer"}.one_of("memory compute");
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "harness/results/value.h"

namespace kv::results {

// A column of any type. Its texts live as long as the program.
struct AnyColumn {
  std::string_view name;
  std::string_view unit;  // empty for texts and pure numbers
  std::string_view meaning;
  Type type;
  std::string_view values = {};   // all values of an enumerated text, separated by spaces
  std::string_view aliases = {};  // names in earlier versions, separated by spaces
  std::string_view title = {};    // an axis's value in a chart panel's title, as "batch {}"
  bool is_x_axis = false;         // the axis gives a point's position in a panel, as the length does
  std::string_view key = {};      // the config key that sweeps the axis; empty: none
  bool is_stage = false;          // a part of a cache's spec
  std::string_view heading = {};  // its title in every table and chart, as "time / baseline"; empty: its name
  bool is_arm = false;            // the axis's value is a part of a row's name, as its title says it
  std::string_view end = {};      // "lower" or "upper" of an interval, which `meaning` then describes
  std::string_view end_of = {};   // the name of the interval's value

  bool is_named(std::string_view wanted) const;
  std::string help() const;  // the meaning as a sentence
};

// T: std::string, Integer, Number or Status.
template <class T>
struct Column : AnyColumn {
  constexpr Column(std::string_view name_, std::string_view unit_, std::string_view meaning_)
      : AnyColumn{name_, unit_, meaning_, type_of()} {}

  // No value may be a word that CSV readers take for a missing one: "none", "null", "NA".
  constexpr Column one_of(std::string_view words) const {
    Column column = *this;
    column.values = words;
    return column;
  }
  constexpr Column formerly(std::string_view names) const {
    Column column = *this;
    column.aliases = names;
    return column;
  }
  // Marks an axis: a config sweeps it, or the config's geometry has it.
  constexpr Column axis(std::string_view title_, bool is_x_axis_ = false) const {
    Column column = *this;
    column.title = title_;
    column.is_x_axis = is_x_axis_;
    return column;
  }
  constexpr Column swept_by(std::string_view key_) const {
    Column column = *this;
    column.key = key_;
    return column;
  }
  constexpr Column arm() const {
    Column column = *this;
    column.is_arm = true;
    return column;
  }
  constexpr Column stage() const {
    Column column = *this;
    column.is_stage = true;
    return column;
  }
  constexpr Column called(std::string_view heading_) const {
    Column column = *this;
    column.heading = heading_;
    return column;
  }

 private:
  static constexpr Type type_of() {
    if constexpr (std::is_same_v<T, Integer>) return Type::kInteger;
    if constexpr (std::is_same_v<T, Number>) return Type::kNumber;
    return std::is_same_v<T, Status> ? Type::kStatus : Type::kText;
  }
};

using TextColumn = Column<std::string>;
using IntegerColumn = Column<Integer>;
using NumberColumn = Column<Number>;

using ColumnList = std::vector<const AnyColumn*>;

// Consecutive columns, in order; an estimate's are its value and both ends.
template <class... Columns>
constexpr auto column_list(const Columns&... columns) {
  std::array<const AnyColumn*, (0 + ... + (requires { columns.high; } ? 3 : 1))> list{};
  auto at = list.begin();
  const auto add = [&](const auto& column) {
    *at++ = &column;
    if constexpr (requires { column.high; }) *at++ = &column.low, *at++ = &column.high;
  };
  (add(columns), ...);
  return list;
}

// An axis's value by its title: "batch 4".
std::string titled(const AnyColumn& axis, const std::string& value);

// Words of a text such as `values` and `aliases`.
std::vector<std::string> words_of(std::string_view text);

}  // namespace kv::results
