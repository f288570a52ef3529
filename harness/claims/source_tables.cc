#include "harness/claims/claims_table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "harness/claims/verdict.h"
#include "harness/io/text_table.h"

namespace kv::claims {
namespace {

struct Cell {
  std::string published, computed, measured;
  const Verdict* verdict = nullptr;  // of the published figure
};

struct SourceTable {
  const FigureResult* first;
  std::vector<std::string> rows, columns;
  std::vector<std::vector<Cell>> cells;  // [row][column]

  Cell& at(const std::string& row, const std::string& column) {
    const size_t i = place(rows, row), j = place(columns, column);
    cells.resize(rows.size());
    for (std::vector<Cell>& line : cells) line.resize(columns.size());
    return cells[i][j];
  }

 private:
  static size_t place(std::vector<std::string>& names, const std::string& name) {
    const auto found = std::ranges::find(names, name);
    const size_t index = static_cast<size_t>(found - names.begin());
    if (found == names.end()) names.push_back(name);
    return index;
  }
};

std::vector<SourceTable> tables_of(std::span<const FigureResult> figures) {
  std::vector<SourceTable> tables;
  for (const FigureResult& f : figures) {
    const Statement& s = *f.statement;
    if (s.table.empty()) continue;
    auto table = std::ranges::find_if(tables, [&](const SourceTable& t) {
      return t.first->file == f.file && t.first->statement->table == s.table;
    });
    if (table == tables.end()) table = tables.insert(table, SourceTable{&f, {}, {}, {}});
    Cell& cell = table->at(s.row, s.column);
    cell.published = s.published.text;
    if (cell.computed.empty()) cell.computed = f.computed;
    if (cell.measured.empty()) cell.measured = f.measured;
    if (f.decides || s.check->own) cell.verdict = f.verdict;
  }
  return tables;
}

std::string shown(const SourceTable& table, size_t width) {
  io::TextTable text;
  text.title = table.first->file->title + ": " + table.first->statement->table;
  text.facts = table.first->claim->place + ".";
  for (const std::string& row : table.rows) text.rows.push_back({row, {}});
  for (size_t j = 0; j < table.columns.size(); ++j) {
    for (const auto& [kind, part] :
         {std::pair{"published", &Cell::published}, std::pair{"computed", &Cell::computed},
          std::pair{"measured", &Cell::measured}}) {
      const auto is_empty = [&, part = part](const std::vector<Cell>& line) {
        return (line[j].*part).empty();
      };
      if (std::ranges::all_of(table.cells, is_empty)) continue;
      text.heads.push_back({table.columns[j], kind});
      for (size_t i = 0; i < table.rows.size(); ++i) {
        const Cell& cell = table.cells[i][j];
        const std::string& value = cell.*part;
        const bool marked = part == &Cell::published && cell.verdict && cell.verdict != &kReproduced;
        text.rows[i].fields.push_back(
            {value.empty() ? "–" : value, marked ? text.footnote(std::string(cell.verdict->name)) : ""});
      }
    }
  }
  text.notes.push_back(
      {"", "Figures without a mark are reproduced. Measured caches were filled and counted by the ledger."});
  return io::terminal_text(text, width);
}

}  // namespace

std::string source_tables(std::span<const FigureResult> figures, size_t width) {
  std::string text;
  for (const SourceTable& table : tables_of(figures))
    text += (text.empty() ? "" : "\n") + shown(table, width);
  return text;
}

}  // namespace kv::claims
