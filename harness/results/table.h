// A results table: its file, and its columns in order. Only this file converts between values and text.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/results/row.h"

namespace kv::results {

struct Table {
  std::string_view file;  // "cells.csv"
  ColumnList columns;
  // A cell that has this column has rows in this table. Null: not known.
  const AnyColumn* present_if = nullptr;

  // Looks up by name or alias; null if there is none.
  const AnyColumn* find(std::string_view name) const;
  // Throws std::invalid_argument for an unknown name.
  const AnyColumn& at(std::string_view name) const;
  void add(std::span<const AnyColumn* const> more);  // skips columns that it already has
};

std::string csv_header(const Table& table);
std::string csv_lines(const Table& table, std::span<const Row> rows);
// A header and the rows.
std::string csv_text(const Table& table, std::span<const Row> rows);
// [{column: value, …}, …] by the names of the CSV header; numbers are numbers, and absent values are left out.
std::string json_text(const Table& table, std::span<const Row> rows);

// The columns of `table` that a file has. Throws std::invalid_argument if the file lacks the table's first column or
// has an unknown one, which another version wrote.
Table table_in(const std::filesystem::path& path, const Table& table);
// A file's rows. Its columns may be any of the table's in any order; a torn last line is dropped. Throws
// std::invalid_argument as table_in does, and for a value of the wrong type. `skips`: leaves out such columns and values.
std::vector<Row> read_csv(const std::filesystem::path& path, const Table& table, bool skips = false);

// [{"name", "unit", "type", "meaning", "aliases", "experiments", "values", "axis", "title", "key", "stage"}, …], in
// order; keys from "experiments" on appear only if they apply. An axis without a title gives a point's position in a
// panel. `experiments`: writers of the column, by its name.
std::string columns_json(const Table& table,
                         const std::map<std::string_view, std::vector<std::string_view>>& experiments);

}  // namespace kv::results
