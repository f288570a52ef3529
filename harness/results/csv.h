// Tables of results as CSV: the one conversion between values and text.
#pragma once

#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/io/csv.h"
#include "harness/results/schema.h"

namespace kv::results {

template <class Row>
std::string csv_header(const Schema<Row>& schema) {
  io::CsvRecord names;
  for (const Field<Row>& field : schema.fields()) names.emplace_back(field.name);
  return io::csv_line(names);
}

template <class Row>
std::string csv_line(const Schema<Row>& schema, const Row& row) {
  io::CsvRecord fields;
  for (const Field<Row>& field : schema.fields()) fields.push_back(field.text(row));
  return io::csv_line(fields);
}

template <class Row>
std::string csv_lines(const Schema<Row>& schema, std::span<const Row> rows) {
  std::string text;
  for (const Row& row : rows) text += csv_line(schema, row);
  return text;
}

// A header and the rows.
template <class Row>
std::string csv_text(const Schema<Row>& schema, const std::vector<Row>& rows) {
  return csv_header(schema) + csv_lines<Row>(schema, rows);
}

// Each field's column in a file's header, or -1 if an earlier version lacked the field. Throws std::invalid_argument
// for the header of another schema.
template <class Row>
std::vector<int> columns_in(const std::filesystem::path& path, const io::CsvRecord& header,
                            const Schema<Row>& schema) {
  std::vector<int> columns;
  size_t next = 0;
  for (const Field<Row>& field : schema.fields()) {
    const bool here = next < header.size() && field.is_named(header[next]);
    if (!here && !field.later) {
      throw std::invalid_argument(path.string() + ": column " + std::to_string(next + 1) + " is '" +
                                  (next < header.size() ? header[next] : "") + "' instead of '" +
                                  std::string(field.name) + "'; it was written by another version");
    }
    columns.push_back(here ? static_cast<int>(next++) : -1);
  }
  if (next < header.size()) {
    throw std::invalid_argument(path.string() + ": column " + std::to_string(next + 1) + ", '" +
                                header[next] + "', is not known; it was written by another version");
  }
  return columns;
}

// Throws std::invalid_argument for a file of another schema; drops a torn last line.
template <class Row>
std::vector<Row> read_csv(const std::filesystem::path& path, const Schema<Row>& schema) {
  const io::CsvTable table = io::read_csv(path);
  if (table.header.empty()) return {};
  const std::vector<int> columns = columns_in(path, table.header, schema);
  std::vector<Row> rows;
  for (const io::CsvRecord& record : table.records) {
    Row& row = rows.emplace_back();
    for (size_t i = 0; i < columns.size(); ++i) {
      if (columns[i] < 0) continue;
      const Field<Row>& field = schema.fields()[i];
      const std::string& text = record[static_cast<size_t>(columns[i])];
      if (field.read(row, text)) continue;
      throw std::invalid_argument(path.string() + ": row " + std::to_string(rows.size() + 1) + " has '" +
                                  text + "' as its " + std::string(field.name));
    }
  }
  return rows;
}

}  // namespace kv::results
