// A table of results: its file, and its columns in order. Text is made of values, and values of text, here alone.
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

  // By name or alias; null where there is none.
  const AnyColumn* find(std::string_view name) const;
  // Throws std::invalid_argument where there is none.
  const AnyColumn& at(std::string_view name) const;
  void add(std::span<const AnyColumn* const> more);  // but those that it has
};

std::string csv_header(const Table& table);
std::string csv_lines(const Table& table, std::span<const Row> rows);
// A header and the rows.
std::string csv_text(const Table& table, std::span<const Row> rows);

// The columns of `table` that a file has. Throws std::invalid_argument for a file that lacks the table's first column
// or has one that the table does not know: another version wrote it.
Table table_in(const std::filesystem::path& path, const Table& table);
// The rows of a file whose columns may come in any order, and be some of the table's; a torn last line is dropped.
// Throws std::invalid_argument as table_in does, and for a value of the wrong type.
std::vector<Row> read_csv(const std::filesystem::path& path, const Table& table);

// [{"name", "unit", "type", "meaning", "aliases", "experiments", "values", "axis", "title", "key", "stage"}, …], in order;
// those from "experiments" on where there are any. An axis without a title says where in a panel a point lies.
// `experiments`: those that write the column, by its name.
std::string columns_json(const Table& table,
                         const std::map<std::string_view, std::vector<std::string_view>>& experiments);

}  // namespace kv::results
