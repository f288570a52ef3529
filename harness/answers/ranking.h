// The one rule by which cells of a sweep point are ranked: which may be named at all, which come first, which are tied, and which lie on
// the Pareto front.
//
// Two times are compared by their ratios to the baseline's, whose intervals decide the verdicts, so that nothing is called faster than
// the baseline and tied with it. Only where a row has no ratio, or there are several baselines, do the intervals of the times decide.
#pragma once

#include <string>
#include <vector>

#include "harness/answers/measure.h"

namespace kv::answers {

// Rows, the best first, and what decides of each.
struct Ranking {
  Cells rows;
  std::vector<Reach> reaches;
  Cells tied;  // others whose interval meets the best's; without intervals those that are equal as printed

  const Row& best() const { return *rows.front(); }
  bool has_intervals() const;
};
// Those of the rows that were measured. Empty where none was.
Ranking rank(const Cells& rows, const Measure& measure);
// By the error of their experiment.
Ranking rank_by_error(const Cells& rows);

// False where the baseline's own times allow no verdict.
bool are_comparable(const Cells& rows);
// Sweeps with baselines of their own may share a sweep point; their ratios cannot be compared.
bool has_one_baseline(const Cells& rows);
// All but oracles and what was not put to the test: those that an answer may name.
Cells nameable(const Cells& rows);

const experiments::ErrorMeasure& error_of(const Row& row);
// True also if no error was measured.
bool keeps_limit(const Row& row);
Cells within_limit(const Cells& rows);
// True if the measured loss is none, whatever the cache's name promises.
bool is_lossless(const Row& row);
// Folders of earlier versions say it by what was lost, or kept at the end.
bool evicts(const Row& row);

// A word for each row: "front", "perhaps" where another is ahead by its median alone, or "". Bytes are compared to three digits and
// errors to two, or a variant would be on the front for the last bit of a sum.
std::vector<std::string> fronts(const Cells& rows);

}  // namespace kv::answers
