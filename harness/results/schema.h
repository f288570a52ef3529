// The schema of a results table: one list of fields a struct. The CSV header, writing, reading, `kvlab list columns`,
// columns.json and every look-up of a column by name come from it.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "harness/results/value.h"

namespace kv::results {

// A field that is one of a list kept by another table: error metrics.
template <class Row>
struct ListedNumber {
  std::vector<Number> Row::*list;
  size_t index;
};

// Marks a column that files of earlier versions may lack.
struct Later {};

template <class Row>
struct Field {
  using Member =
      std::variant<std::string Row::*, Integer Row::*, Number Row::*, Status Row::*, ListedNumber<Row>>;
  using Names = std::vector<std::string_view>;
  std::string_view name;
  std::string_view unit;
  Member member;
  std::string_view meaning;
  Names aliases;                      // other names for reading and look-up
  std::string_view experiments = {};  // same as Column's
  Names values = {};
  bool later = false;

  Field(std::string_view name_, std::string_view unit_, Member member_, std::string_view meaning_,
        Names aliases_ = Names())
      : name(name_), unit(unit_), member(member_), meaning(meaning_), aliases(std::move(aliases_)) {}
  Field(std::string_view name_, std::string_view unit_, Member member_, std::string_view meaning_, Later)
      : Field(name_, unit_, member_, meaning_) {
    later = true;
  }

  Type type() const {
    constexpr Type kTypes[] = {Type::kText, Type::kInteger, Type::kNumber, Type::kText, Type::kNumber};
    return kTypes[member.index()];
  }
  bool is_named(std::string_view wanted) const {
    if (name == wanted) return true;
    for (const std::string_view alias : aliases) {
      if (alias == wanted) return true;
    }
    return false;
  }

  // The text in the CSV file.
  std::string text(const Row& row) const {
    return visit(row, [](const auto& value) { return text_of(value); });
  }
  // Absent for a missing value and for text.
  Number number(const Row& row) const {
    return visit(row, [](const auto& value) -> Number {
      if constexpr (std::is_same_v<decltype(value), const Number&>) return value;
      if constexpr (std::is_same_v<decltype(value), const Integer&>)
        return value ? Number(static_cast<double>(*value)) : Number();
      return {};
    });
  }
  // Returns false if the text is no value of the field.
  bool read(Row& row, const std::string& text) const {
    return visit(row, [&](auto& value) { return parse(text, value); });
  }

 private:
  template <class R, class Use>
  auto visit(R& row, Use use) const {
    return std::visit(
        [&](const auto& at) {
          if constexpr (std::is_same_v<decltype(at), const ListedNumber<Row>&>)
            return use((row.*at.list).at(at.index));
          else
            return use(row.*at);
        },
        member);
  }
};

template <class Row>
class Schema {
 public:
  // `table`: the file's name, for messages.
  Schema(std::string_view table, std::vector<Field<Row>> fields)
      : table_(table), fields_(std::move(fields)) {}

  std::string_view table() const { return table_; }
  const std::vector<Field<Row>>& fields() const { return fields_; }
  // Looks up by name or alias; null if there is none.
  const Field<Row>* find(std::string_view name) const {
    for (const Field<Row>& field : fields_) {
      if (field.is_named(name)) return &field;
    }
    return nullptr;
  }
  // Throws std::invalid_argument for an unknown name.
  const Field<Row>& at(std::string_view name) const {
    if (const Field<Row>* field = find(name)) return *field;
    throw std::invalid_argument("'" + std::string(name) + "' is no column of " + std::string(table_) +
                                "; `kvlab list columns` names them");
  }
  std::string text(const Row& row, std::string_view name) const { return at(name).text(row); }
  Number number(const Row& row, std::string_view name) const { return at(name).number(row); }

 private:
  std::string_view table_;
  std::vector<Field<Row>> fields_;
};

// An enumerated text, or empty. No value may be a word that CSV readers take for a missing one: "none", "null", "NA",
// … (tests/harness/results).
template <class Row>
Field<Row> one_of(Field<Row> field, typename Field<Row>::Names values) {
  field.values = std::move(values);
  return field;
}

// Fields of these experiments alone.
template <class Row>
std::vector<Field<Row>> written_by(std::string_view experiments, std::vector<Field<Row>> fields) {
  for (Field<Row>& field : fields) {
    if (field.experiments.empty()) field.experiments = experiments;
  }
  return fields;
}

}  // namespace kv::results
