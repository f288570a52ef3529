#include "harness/claims/claims_table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "harness/claims/verdict.h"
#include "harness/io/text.h"
#include "harness/io/text_table.h"

namespace kv::claims {
namespace {

using Figures = std::span<const FigureResult>;

// "7 reproduced, 2 contradicted".
std::string verdicts(Figures figures) {
  std::vector<std::string> counts;
  for (const Verdict* verdict : kVerdicts) {
    const auto n = std::ranges::count(figures, verdict, &FigureResult::verdict);
    if (n > 0) counts.push_back(std::to_string(n) + " " + std::string(verdict->name));
  }
  return io::joined(counts);
}

std::string or_dash(const std::string& text) { return text.empty() ? "–" : text; }

// The first reasons in the order of the verdicts' ranks, and each note once: a claim's rows mostly share theirs.
std::string explained(Figures figures) {
  constexpr size_t kMostReasons = 3;
  std::vector<const FigureResult*> reasons;
  std::vector<std::string> lines, notes;
  for (const FigureResult& row : figures) {
    const std::string& note = row.statement->note;
    if (!row.reason.empty() && row.statement->decides()) reasons.push_back(&row);
    if (!note.empty() && !std::ranges::count(notes, note)) notes.push_back(note);
  }
  std::ranges::stable_sort(reasons, {}, [](const FigureResult* row) { return row->verdict->rank; });
  for (const FigureResult* row : reasons) {
    const std::string& figure = row->statement->name;
    if (lines.size() < kMostReasons) lines.push_back((figure.empty() ? "" : figure + ": ") + row->reason);
  }
  if (reasons.size() > kMostReasons)
    lines.push_back("… " + std::to_string(reasons.size() - kMostReasons) + " more in claims.csv");
  for (const std::string& note : notes) lines.push_back("(" + note + ")");
  std::string text;
  for (const std::string& line : lines) text += "      " + line + "\n";
  return text;
}

std::string claim_table(Figures figures) {
  std::vector<std::vector<std::string>> rows{{"", "published", "computed", "measured (95 %)", "verdict"}};
  for (const FigureResult& row : figures) {
    const Statement& s = *row.statement;
    const std::string part = s.decides() ? "" : s.check->own ? "its own sum: " : std::string(s.role) + ": ";
    rows.push_back({s.name, s.published.text, or_dash(row.computed), or_dash(row.measured),
                    part + std::string(row.verdict->name)});
  }
  const Claim& claim = *figures.front().claim;
  return "\n  " + claim.id + ": " + claim.text + "\n" + io::aligned_text(rows) + explained(figures);
}

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

std::string claims_table(Figures figures) {
  std::string text;
  const ClaimFile* file = nullptr;
  for (size_t first = 0; first < figures.size();) {
    const FigureResult& row = figures[first];
    if (row.file != file) text += "\n" + row.file->title + " [" + row.file->name + "]\n";
    file = row.file;
    size_t last = first;
    while (last < figures.size() && figures[last].claim == row.claim) ++last;
    text += claim_table(figures.subspan(first, last - first));
    first = last;
  }
  std::vector<FigureResult> published;
  std::ranges::copy_if(figures, std::back_inserter(published), &FigureResult::decides);
  return text + "\n" + counted(published.size(), "published figure") + ", " +
         counted(figures.size(), "check") + (published.empty() ? "" : ": " + verdicts(published)) + "\n";
}

std::string source_tables(std::span<const FigureResult> figures, size_t width) {
  std::string text;
  for (const SourceTable& table : tables_of(figures))
    text += (text.empty() ? "" : "\n") + shown(table, width);
  return text;
}

}  // namespace kv::claims
