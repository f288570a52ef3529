// The schema of a table of results: one list of fields a struct. The CSV header, writing and reading,
// `kvlab list columns`, columns.json and every look-up by a column's name come from it.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "harness/results/value.h"

namespace kv::results {

// What is said of a column, whatever struct it is a field of.
struct Column {
  std::string_view name;
  std::string_view unit;  // empty of texts and pure numbers
  Type type;
  std::string_view meaning;
  std::vector<std::string_view> aliases;
  std::string_view experiments = {};          // that write it, separated by spaces; empty of other tables
  std::vector<std::string_view> values = {};  // all of them, of a text that is one of a few
  bool stage = false;                         // says what a variant is made of
};

// A field of a struct that is one of a list, which another table names: error metrics.
template <class Row>
struct ListedNumber {
  std::vector<Number> Row::*list;
  size_t index;
};

// Files that an earlier version has written may lack the column.
struct Later {};
// The same, and the column says what a variant is made of.
struct StageColumn : Later {};

template <class Row>
struct Field {
  using Member =
      std::variant<std::string Row::*, Integer Row::*, Number Row::*, Status Row::*, ListedNumber<Row>>;
  using Names = std::vector<std::string_view>;
  std::string_view name;
  std::string_view unit;
  Member member;
  std::string_view meaning;
  Names aliases;                      // other names under which the column can be read and asked for
  std::string_view experiments = {};  // as of Column
  Names values = {};
  bool later = false, stage = false;

  Field(std::string_view name_, std::string_view unit_, Member member_, std::string_view meaning_,
        Names aliases_ = Names())
      : name(name_), unit(unit_), member(member_), meaning(meaning_), aliases(std::move(aliases_)) {}
  Field(std::string_view name_, std::string_view unit_, Member member_, std::string_view meaning_, Later)
      : Field(name_, unit_, member_, meaning_) {
    later = true;
  }
  Field(std::string_view name_, std::string_view unit_, Member member_, std::string_view meaning_,
        StageColumn)
      : Field(name_, unit_, member_, meaning_, Later{}) {
    stage = true;
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

  // As the CSV file has it.
  std::string text(const Row& row) const {
    return visit(row, [](const auto& value) { return text_of(value); });
  }
  // Absent where there is none, and of a text.
  Number number(const Row& row) const {
    return visit(row, [](const auto& value) -> Number {
      if constexpr (std::is_same_v<decltype(value), const Number&>) return value;
      if constexpr (std::is_same_v<decltype(value), const Integer&>)
        return value ? Number(static_cast<double>(*value)) : Number();
      return {};
    });
  }
  // False if the text is no value of the field.
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
  std::vector<Column> columns() const {
    std::vector<Column> columns;
    for (const Field<Row>& f : fields_) {
      columns.push_back({f.name, f.unit, f.type(), f.meaning, f.aliases, f.experiments, f.values, f.stage});
    }
    return columns;
  }

  // By name or alias; null where there is none.
  const Field<Row>* find(std::string_view name) const {
    for (const Field<Row>& field : fields_) {
      if (field.is_named(name)) return &field;
    }
    return nullptr;
  }
  // Throws std::invalid_argument where there is none.
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

// A field that holds one of these texts or is empty. None may be a word that readers of CSV take for a missing
// value: "none", "null", "NA", … (tests/harness/results).
template <class Row>
Field<Row> one_of(Field<Row> field, typename Field<Row>::Names values) {
  field.values = std::move(values);
  return field;
}

// Fields that these experiments fill in.
template <class Row>
std::vector<Field<Row>> written_by(std::string_view experiments, std::vector<Field<Row>> fields) {
  for (Field<Row>& field : fields) {
    if (field.experiments.empty()) field.experiments = experiments;
  }
  return fields;
}

// [{"name", "unit", "type", "meaning", "aliases", "experiments", "values", "stage", "axis", "title", "key"}, …], in
// order; those from "experiments" on where there are any.
std::string columns_json(const std::vector<Column>& columns);

}  // namespace kv::results
