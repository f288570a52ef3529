// One published figure with its verdict: a row of claims.csv.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/claims/check.h"
#include "harness/claims/claims.h"

namespace kv::claims {

// Claim files must outlive it.
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
