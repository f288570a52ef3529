#include "harness/results/table.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/io/csv.h"

namespace kv::results {
namespace {

// The table's column for each name in a file's header; null for an unknown one where the caller `skips` it.
ColumnList columns_of(const std::filesystem::path& path, const io::CsvRecord& header, const Table& table,
                      bool skips = false) {
  ColumnList columns;
  for (const std::string& name : header) {
    const AnyColumn* column = table.find(name);
    const bool is_twice = column && std::count(columns.begin(), columns.end(), column) > 0;
    columns.push_back(is_twice ? nullptr : column);
    if (columns.back() || skips) continue;
    throw std::invalid_argument(path.string() +
                                (is_twice ? ": has the column '" + name + "' twice"
                                          : ": column " + std::to_string(columns.size()) + ", '" + name +
                                                "', is not known; it was written by another version"));
  }
  if (std::count(columns.begin(), columns.end(), table.columns.front()) == 0)
    throw std::invalid_argument(path.string() + ": lacks the column '" +
                                std::string(table.columns.front()->name) +
                                "'; it was written by another version");
  return columns;
}

}  // namespace

const AnyColumn* Table::find(std::string_view name) const {
  const auto found = std::find_if(columns.begin(), columns.end(),
                                  [&](const AnyColumn* column) { return column->is_named(name); });
  return found == columns.end() ? nullptr : *found;
}

const AnyColumn& Table::at(std::string_view name) const {
  if (const AnyColumn* column = find(name)) return *column;
  throw std::invalid_argument("'" + std::string(name) + "' is no column of " + std::string(file) +
                              "; `kvlab list columns` names them");
}

void Table::add(std::span<const AnyColumn* const> more) {
  for (const AnyColumn* column : more) {
    if (std::find(columns.begin(), columns.end(), column) == columns.end()) columns.push_back(column);
  }
}

std::string csv_header(const Table& table) {
  io::CsvRecord names;
  for (const AnyColumn* column : table.columns) names.emplace_back(column->name);
  return io::csv_line(names);
}

std::string csv_lines(const Table& table, std::span<const Row> rows) {
  std::string text;
  for (const Row& row : rows) {
    io::CsvRecord fields;
    for (const AnyColumn* column : table.columns) fields.push_back(row.text(*column));
    text += io::csv_line(fields);
  }
  return text;
}

std::string csv_text(const Table& table, std::span<const Row> rows) {
  return csv_header(table) + csv_lines(table, rows);
}

std::string json_text(const Table& table, std::span<const Row> rows) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json& object = all.emplace_back(nlohmann::ordered_json::object());
    for (const AnyColumn* column : table.columns) {
      const std::string text = row.text(*column);
      if (text.empty()) continue;
      nlohmann::ordered_json value = text;
      if (const Number number = row.number(*column); number && std::isfinite(*number))
        value = nlohmann::ordered_json::parse(text);
      object[std::string(column->name)] = value;
    }
  }
  return all.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Table table_in(const std::filesystem::path& path, const Table& table) {
  return {table.file, columns_of(path, io::read_csv(path).header, table), table.present_if};
}

std::vector<Row> read_csv(const std::filesystem::path& path, const Table& table, bool skips) {
  const io::CsvTable file = io::read_csv(path);
  if (file.header.empty()) return {};
  const ColumnList columns = columns_of(path, file.header, table, skips);
  std::vector<Row> rows;
  for (const io::CsvRecord& record : file.records) {
    Row& row = rows.emplace_back();
    for (size_t i = 0; i < columns.size(); ++i) {
      if (!columns[i] || row.read(*columns[i], record[i]) || skips) continue;
      throw std::invalid_argument(path.string() + ": row " + std::to_string(rows.size() + 1) + " has '" +
                                  record[i] + "' as its " + std::string(columns[i]->name));
    }
  }
  return rows;
}

std::string columns_json(const Table& table,
                         const std::map<std::string_view, std::vector<std::string_view>>& experiments) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const AnyColumn* c : table.columns) {
    nlohmann::ordered_json& column =
        all.emplace_back(nlohmann::ordered_json{{"name", c->name},
                                                {"unit", c->unit},
                                                {"type", type_name(c->type)},
                                                {"meaning", c->help()},
                                                {"aliases", words_of(c->aliases)}});
    if (const auto found = experiments.find(c->name); found != experiments.end())
      column["experiments"] = found->second;
    if (!c->values.empty()) column["values"] = words_of(c->values);
    if (!c->title.empty()) {
      column["axis"] = true;
      if (!c->is_x_axis) column["title"] = c->title;
      if (!c->key.empty()) column["key"] = c->key;
    }
    if (c->is_arm) column["arm"] = true;
    if (c->is_stage) column["stage"] = true;
    if (!c->heading.empty()) column["heading"] = c->heading;
  }
  return all.dump(1) + "\n";
}

}  // namespace kv::results
