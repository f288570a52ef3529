#include "harness/claims/claims_table.h"

#include <algorithm>
#include <vector>

#include "harness/claims/verdict.h"
#include "harness/io/aligned_text.h"
#include "harness/io/text.h"

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
  return text + "\n" + std::to_string(published.size()) + " published figures, " +
         std::to_string(figures.size()) + " checks" + (published.empty() ? "" : ": " + verdicts(published)) +
         "\n";
}

}  // namespace kv::claims
