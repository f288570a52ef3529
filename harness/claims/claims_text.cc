#include "harness/claims/claims_text.h"

#include <algorithm>
#include <map>

#include "harness/claims/verdict.h"
#include "harness/io/aligned_text.h"

namespace kv::claims {
namespace {

// The rows of one claim, in order.
std::vector<const FigureResult*> rows_of(const ClaimFile& file, const Claim& claim,
                                         std::span<const FigureResult> figures) {
  std::vector<const FigureResult*> rows;
  for (const FigureResult& row : figures) {
    if (row.source == file.name && row.claim == claim.id) rows.push_back(&row);
  }
  return rows;
}

int count_of(const std::vector<const FigureResult*>& rows, const Verdict& verdict) {
  return static_cast<int>(std::count_if(
      rows.begin(), rows.end(), [&](const FigureResult* row) { return row->verdict == verdict.name; }));
}

// What is explained first comes first.
std::vector<const Verdict*> by_rank() {
  std::vector<const Verdict*> verdicts(kVerdicts.begin(), kVerdicts.end());
  std::sort(verdicts.begin(), verdicts.end(),
            [](const Verdict* a, const Verdict* b) { return a->rank < b->rank; });
  return verdicts;
}

// "7 reproduced, 2 contradicted"; of a single figure the verdict alone.
std::string verdicts(const std::vector<const FigureResult*>& rows) {
  if (rows.size() == 1) return rows.front()->verdict;
  std::string text;
  for (const Verdict* verdict : kVerdicts) {
    const int n = count_of(rows, *verdict);
    if (n > 0) text += (text.empty() ? "" : ", ") + std::to_string(n) + " " + std::string(verdict->name);
  }
  return text;
}

std::string or_dash(const std::string& text) { return text.empty() ? "–" : text; }

std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find_first_of("|\n<", at)) != std::string::npos; at += 2) {
    if (text[at] == '\n') {
      text[at] = ' ';
    } else {
      text.insert(at, "\\");
    }
  }
  return text;
}

std::string line(const std::vector<std::string>& fields) {
  std::string text = "|";
  for (const std::string& field : fields) text += " " + cell(field) + " |";
  return text + "\n";
}

std::string head(const std::vector<std::string>& names) {
  std::string rule = "|";
  for (size_t i = 0; i < names.size(); ++i) rule += "---|";
  return line(names) + rule + "\n";
}

// What a column has in the first and in the last row: "0.67 MB … 21.990 GB".
std::string from_to(const std::vector<const FigureResult*>& rows, std::string FigureResult::*field) {
  const std::string first = rows.front()->*field, last = rows.back()->*field;
  return first == last ? or_dash(first) : or_dash(first) + " … " + or_dash(last);
}

std::string total_line(std::span<const FigureResult> figures) {
  std::vector<const FigureResult*> rows;
  for (const FigureResult& row : figures) rows.push_back(&row);
  return std::to_string(rows.size()) + " figures" + (rows.empty() ? "" : ": " + verdicts(rows));
}

// The claims that have rows, with them.
template <class Visit>
void for_each_claim(const std::vector<ClaimFile>& files, std::span<const FigureResult> figures, Visit visit) {
  for (const ClaimFile& file : files) {
    bool first = true;
    for (const Claim& claim : file.claims) {
      const std::vector<const FigureResult*> rows = rows_of(file, claim, figures);
      if (rows.empty()) continue;
      visit(file, claim, rows, first);
      first = false;
    }
  }
}

// What a reader of the terminal gets of a claim's reasons; claims.md has them all.
constexpr size_t kReasonsShown = 3;

std::vector<std::string> reasons_of(const std::vector<const FigureResult*>& rows) {
  std::vector<std::string> reasons;
  for (const Verdict* verdict : by_rank()) {
    for (const FigureResult* row : rows) {
      const std::string &reason = row->reason, &figure = row->figure;
      if (reason.empty() || row->verdict != verdict->name) continue;
      reasons.push_back(figure.empty() ? reason : figure + ": " + reason);
    }
  }
  return reasons;
}

// Every different one once: a claim's rows mostly share theirs.
std::vector<std::string> notes_of(const std::vector<const FigureResult*>& rows) {
  std::vector<std::string> notes;
  for (const FigureResult* row : rows) {
    const std::string& note = row->note;
    if (!note.empty() && std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
  }
  return notes;
}

std::string indented(const std::string& text) { return "      " + text + "\n"; }

std::string explained(const std::vector<const FigureResult*>& rows) {
  std::string text;
  const std::vector<std::string> reasons = reasons_of(rows);
  for (size_t i = 0; i < std::min(reasons.size(), kReasonsShown); ++i) text += indented(reasons[i]);
  if (reasons.size() > kReasonsShown)
    text += indented("… " + std::to_string(reasons.size() - kReasonsShown) + " more in claims.md");
  for (const std::string& note : notes_of(rows)) text += indented("(" + note + ")");
  return text;
}

// "≈8.5 GB, here 1.074 GB"; with its name where a claim has several figures.
std::string published_and_here(const FigureResult& row) {
  const std::string &figure = row.figure, &measured = row.measured;
  return (figure.empty() ? "" : figure + ": ") + row.published + ", here " +
         (measured.empty() ? row.computed : measured);
}

// Contradicted figures of a source, the first of each claim. Those that arithmetic settles come before those
// of other inputs than the source's, and those before times of this machine.
std::vector<const FigureResult*> contradicted(std::span<const FigureResult* const> rows) {
  std::vector<const FigureResult*> first;
  for (const FigureResult* row : rows) {
    const bool known = std::any_of(first.begin(), first.end(),
                                   [&](const FigureResult* r) { return r->claim == row->claim; });
    if (row->verdict == kContradicted.name && !known) first.push_back(row);
  }
  std::stable_sort(first.begin(), first.end(), [](const FigureResult* a, const FigureResult* b) {
    const auto rank = [](const FigureResult& r) { return !r.is_exact() + 2 * r.depends_on_machine(); };
    return rank(*a) < rank(*b);
  });
  return first;
}

// What a reader of the summary gets of a source; the table below has them all.
constexpr size_t kContradictedShown = 3;

std::string contradicted_text(std::span<const FigureResult* const> rows) {
  const std::vector<const FigureResult*> first = contradicted(rows);
  std::string text;
  for (size_t i = 0; i < std::min(first.size(), kContradictedShown); ++i)
    text += (i ? "; " : "") + first[i]->text + " (" + published_and_here(*first[i]) + ")";
  if (first.size() > kContradictedShown)
    text += "; and " + std::to_string(first.size() - kContradictedShown) + " more";
  return text;
}

// Those that a figure has, in the order of the table.
std::vector<const Verdict*> verdicts_of(std::span<const FigureResult> figures) {
  std::vector<const Verdict*> given;
  for (const Verdict* verdict : kVerdicts) {
    const auto is = [&](const FigureResult& row) { return row.verdict == verdict->name; };
    if (std::any_of(figures.begin(), figures.end(), is)) given.push_back(verdict);
  }
  return given;
}

std::string by_source(const std::vector<ClaimFile>& files, std::span<const FigureResult> figures) {
  const std::vector<const Verdict*> given = verdicts_of(figures);
  std::vector<std::string> columns{"source"};
  for (const Verdict* verdict : given) columns.emplace_back(verdict->name);
  columns.emplace_back("what was contradicted");
  std::string text = head(columns);
  for (const ClaimFile& file : files) {
    std::vector<const FigureResult*> rows;
    for (const FigureResult& row : figures) {
      if (row.source == file.name) rows.push_back(&row);
    }
    if (rows.empty()) continue;
    std::vector<std::string> fields{file.title};
    for (const Verdict* verdict : given) fields.push_back(std::to_string(count_of(rows, *verdict)));
    fields.push_back(contradicted_text(rows));
    text += line(fields);
  }
  return text;
}

// Why the figure that needs it most has its verdict: the file's own words where it has some.
std::string why(const std::vector<const FigureResult*>& rows) {
  for (const Verdict* verdict : by_rank()) {
    if (verdict == &kReproduced) continue;
    for (const FigureResult* row : rows) {
      if (row->verdict != verdict->name) continue;
      const std::string replica = row->is_exact() ? "" : "qualitative replica: ";
      return replica + (row->note.empty() ? row->reason : row->note);
    }
  }
  return "";
}

std::string by_claim(const std::vector<ClaimFile>& files, std::span<const FigureResult> figures) {
  std::string text = head({"source", "claim", "published", "computed", "measured (95 %)", "verdict", "why"});
  for_each_claim(files, figures,
                 [&](const ClaimFile& file, const Claim& claim, const std::vector<const FigureResult*>& rows,
                     bool first) {
                   const std::string figures_of =
                       rows.size() > 1 ? " (" + std::to_string(rows.size()) + " figures)" : "";
                   text +=
                       line({first ? file.title : "", claim.text + figures_of,
                             from_to(rows, &FigureResult::published), from_to(rows, &FigureResult::computed),
                             from_to(rows, &FigureResult::measured), verdicts(rows), why(rows)});
                 });
  return text;
}

}  // namespace

std::string claims_table(const std::vector<ClaimFile>& files, std::span<const FigureResult> figures) {
  std::string text;
  for_each_claim(files, figures,
                 [&](const ClaimFile& file, const Claim& claim, const std::vector<const FigureResult*>& rows,
                     bool first) {
                   if (first) text += "\n" + file.title + " [" + file.name + "]\n";
                   text += "\n  " + claim.id + ": " + claim.text + "\n";
                   std::vector<std::vector<std::string>> table{
                       {"", "published", "computed", "measured (95 %)", "verdict"}};
                   for (const FigureResult* row : rows) {
                     table.push_back({row->figure, row->published, or_dash(row->computed),
                                      or_dash(row->measured), row->verdict});
                   }
                   text += io::aligned_text(table);
                   text += explained(rows);
                 });
  return text + "\n" + total_line(figures) + "\n";
}

std::string claims_markdown(const std::vector<ClaimFile>& files, std::span<const FigureResult> figures) {
  std::string text = "# Published claims, and what became of them\n\n" + total_line(figures) + ".\n";
  for_each_claim(
      files, figures,
      [&](const ClaimFile& file, const Claim& claim, const std::vector<const FigureResult*>& rows,
          bool first) {
        if (first) text += "\n## " + file.title + "\n\n" + file.document + "\n";
        text +=
            "\n### " + claim.id + "\n\n" + claim.text + " (" + claim.place + ")\n\n> " + claim.quote + "\n\n";
        if (!claim.setting.empty()) text += "Setting: " + claim.setting + "\n\n";
        text += head({"figure", "published", "computed", "measured (95 %)", "verdict", "check", "why"});
        for (const FigureResult* row : rows) {
          const std::string replica = row->is_exact() ? "" : ", qualitative";
          const std::string machine = row->depends_on_machine() ? ", this machine" : "";
          text += line({row->figure, row->published, or_dash(row->computed), or_dash(row->measured),
                        row->verdict, row->check + replica + machine, row->reason});
        }
        for (const std::string& note : notes_of(rows)) text += "\nNote: " + note + "\n";
      });
  return text;
}

std::string claims_summary(const std::vector<ClaimFile>& files, std::span<const FigureResult> figures) {
  return total_line(figures) + ".\n\n" + by_source(files, figures) +
         "\n<details><summary>Every claim</summary>\n\n" + by_claim(files, figures) + "\n</details>\n";
}

}  // namespace kv::claims
