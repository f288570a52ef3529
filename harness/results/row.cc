#include "harness/results/row.h"

#include <algorithm>
#include <iterator>
#include <sstream>

namespace kv::results {

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream words{std::string(text)};
  return {std::istream_iterator<std::string>(words), {}};
}

std::string titled(const AnyColumn& axis, const std::string& value) {
  std::string text(axis.title);
  const size_t at = text.find("{}");
  return at == std::string::npos ? value : text.replace(at, 2, value);
}

std::string AnyColumn::help() const {
  if (end.empty()) return std::string(meaning);
  return std::string(end) + " end of " + std::string(end_of) + "'s " + std::string(meaning);
}

bool AnyColumn::is_named(std::string_view wanted) const {
  if (name == wanted) return true;
  const std::vector<std::string> others = words_of(aliases);
  return std::find(others.begin(), others.end(), wanted) != others.end();
}

std::string Row::text(const AnyColumn& column) const {
  const auto found = values_.find(column.name);
  if (found == values_.end()) return "";
  return std::visit([](const auto& value) { return text_of(value); }, found->second);
}

Number Row::number(const AnyColumn& column) const {
  const auto found = values_.find(column.name);
  if (found == values_.end()) return {};
  if (const Number* number = std::get_if<Number>(&found->second)) return *number;
  const Integer* integer = std::get_if<Integer>(&found->second);
  return integer && *integer ? Number(static_cast<double>(**integer)) : Number();
}

bool Row::read(const AnyColumn& column, const std::string& text) {
  if (text.empty()) return true;
  switch (column.type) {
    case Type::kText:
      get<std::string>(column.name) = text;
      return true;
    case Type::kInteger:
      return parse(text, get<Integer>(column.name));
    case Type::kNumber:
      return parse(text, get<Number>(column.name));
    case Type::kStatus:
      return parse(text, get<Status>(column.name));
  }
  return false;
}

std::string_view Row::value_outside(const ColumnList& columns) const {
  for (const auto& entry : values_) {
    const auto is_it = [&](const AnyColumn* column) { return column->name == entry.first; };
    if (std::any_of(columns.begin(), columns.end(), is_it)) continue;
    if (!std::visit([](const auto& value) { return text_of(value); }, entry.second).empty())
      return entry.first;
  }
  return {};
}

void Row::copy(const Row& from, const ColumnList& columns) {
  for (const AnyColumn* column : columns) {
    const auto found = from.values_.find(column->name);
    if (found != from.values_.end()) values_[column->name] = found->second;
  }
}

}  // namespace kv::results
