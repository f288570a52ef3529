// Compares one published figure with the values computed and measured for it, and gives the verdict (verdict.h).
//
// One rule for every claim. A value agrees if it lies in the figure's window (figure.h), a measured one if all of its 95 %
// interval does; it disagrees if all of it lies outside. A bound agrees only if every value that it allows lies in the window,
// and disagrees if none does. The worst of the computed and the measured decides a figure's verdict. Disagreement contradicts
// the source only in its own setting: by arithmetic on its own numbers, or by values that are the same on every machine.
// Documents write MB for 2^20 bytes and K for 1024 tokens; a figure that agrees under one such reading of everything in it is
// reproduced, and the reason names the reading.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/claims/claims.h"
#include "harness/claims/quantities.h"
#include "harness/claims/verdict.h"

namespace kv::claims {

struct Outcome {
  const Verdict* verdict;
  std::string reason;
  // In the figure's unit, the latter with its interval; empty where there is none.
  std::string computed = {}, measured = {};
  // In the base unit.
  std::optional<double> computed_value = {}, measured_value = {};
  std::optional<math::ConfidenceInterval> interval = {};
};

// Throws std::invalid_argument (file, line, what would be right) where the statement cannot be evaluated as it is written.
Outcome check(const Statement& statement, const Quantities& quantities, tables::CountedBytes& counted);

// A row of claims.csv. Claim files must outlive it.
struct FigureResult : Outcome {
  const ClaimFile* file;
  const Claim* claim;
  const Statement* statement;
  bool decides = false;  // its verdict is that of the published figure
};

// Marks the check that decides each published figure: the one of the worst verdict, where of readings only the best counts.
void settle(std::vector<FigureResult>& figures);

// The text of claims.csv: kClaimTable.
std::string claims_csv(std::span<const FigureResult> figures);

}  // namespace kv::claims
