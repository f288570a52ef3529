#include "harness/claims/claims_table.h"

#include <algorithm>
#include <vector>

#include "harness/claims/verdict.h"
#include "harness/io/aligned_text.h"

namespace kv::claims {
namespace {

using Figures = std::span<const FigureResult>;

// "7 reproduced, 2 contradicted"; the verdict alone for a single figure.
std::string verdicts(Figures figures) {
  if (figures.size() == 1) return std::string(figures.front().verdict->name);
  std::string text;
  for (const Verdict* verdict : kVerdicts) {
    const auto n = std::ranges::count(figures, verdict, &FigureResult::verdict);
    if (n > 0) text += (text.empty() ? "" : ", ") + std::to_string(n) + " " + std::string(verdict->name);
  }
  return text;
}

std::string or_dash(const std::string& text) { return text.empty() ? "–" : text; }

// In the order of the verdicts' ranks.
std::vector<std::string> reasons_of(Figures figures) {
  std::vector<const FigureResult*> rows;
  for (const FigureResult& row : figures) {
    if (!row.reason.empty()) rows.push_back(&row);
  }
  std::ranges::stable_sort(rows, {}, [](const FigureResult* row) { return row->verdict->rank; });
  std::vector<std::string> reasons;
  for (const FigureResult* row : rows) {
    const std::string& figure = row->statement->name;
    reasons.push_back((figure.empty() ? "" : figure + ": ") + row->reason);
  }
  return reasons;
}

// A claim's rows mostly share their notes; each is shown once.
std::vector<std::string> notes_of(Figures figures) {
  std::vector<std::string> notes;
  for (const FigureResult& row : figures) {
    const std::string& note = row.statement->note;
    if (!note.empty() && !std::ranges::count(notes, note)) notes.push_back(note);
  }
  return notes;
}

std::string explained(Figures figures) {
  constexpr size_t kMostReasons = 3;
  std::vector<std::string> lines = reasons_of(figures);
  if (lines.size() > kMostReasons) {
    const size_t more = lines.size() - kMostReasons;
    lines.resize(kMostReasons);
    lines.push_back("… " + std::to_string(more) + " more in claims.csv");
  }
  for (const std::string& note : notes_of(figures)) lines.push_back("(" + note + ")");
  std::string text;
  for (const std::string& line : lines) text += "      " + line + "\n";
  return text;
}

std::string claim_table(Figures figures) {
  std::vector<std::vector<std::string>> rows{{"", "published", "computed", "measured (95 %)", "verdict"}};
  for (const FigureResult& row : figures)
    rows.push_back({row.statement->name, row.statement->published.text, or_dash(row.computed),
                    or_dash(row.measured), std::string(row.verdict->name)});
  const Claim& claim = *figures.front().claim;
  return "\n  " + claim.id + ": " + claim.text + "\n" + io::aligned_text(rows) + explained(figures);
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
  return text + "\n" + std::to_string(figures.size()) + " figures" +
         (figures.empty() ? "" : ": " + verdicts(figures)) + "\n";
}

}  // namespace kv::claims
