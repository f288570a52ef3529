// A column of a table of results: declared once, beside whoever fills it in. The CSV header, writing and reading,
// `kvlab list columns`, columns.json, charts and claims know a column from its declaration alone.
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

// A column whatever its type. Texts last as long as the program.
struct AnyColumn {
  std::string_view name;
  std::string_view unit;  // empty for texts and pure numbers
  std::string_view meaning;
  Type type;
  std::string_view values = {};   // of a text that is one of a few: all of them, separated by spaces
  std::string_view aliases = {};  // names that earlier versions gave it, separated by spaces
  std::string_view title = {};    // of an axis: how a chart's panel says its value, as "batch {}"
  bool is_place = false;          // of an axis: it says where in a panel a point lies, as the length does
  std::string_view key = {};      // of an axis: the config's key that sweeps it; empty: none does
  bool is_stage = false;          // a part of a cache's spec

  bool is_named(std::string_view wanted) const;
};

// T: std::string, Integer, Number or Status.
template <class T>
struct Column : AnyColumn {
  constexpr Column(std::string_view name_, std::string_view unit_, std::string_view meaning_)
      : AnyColumn{name_, unit_, meaning_, type_of()} {}

  // None of the values may be a word that readers of CSV take for a missing one: "none", "null", "NA".
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
  // A config sweeps it, or the geometry that a config names has it.
  constexpr Column axis(std::string_view title_, bool is_place_ = false) const {
    Column column = *this;
    column.title = title_;
    column.is_place = is_place_;
    return column;
  }
  constexpr Column swept_by(std::string_view key_) const {
    Column column = *this;
    column.key = key_;
    return column;
  }
  constexpr Column stage() const {
    Column column = *this;
    column.is_stage = true;
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

// Columns that come together, in order.
template <class... Columns>
constexpr std::array<const AnyColumn*, sizeof...(Columns)> column_list(const Columns&... columns) {
  return {&columns...};
}

// A value of an axis as its title says it: "batch 4".
std::string titled(const AnyColumn& axis, const std::string& value);

// The words of a text, as `values` and `aliases` have them.
std::vector<std::string> words_of(std::string_view text);

}  // namespace kv::results
