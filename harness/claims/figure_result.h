// One published figure with its verdict: a row of claims.csv.
#pragma once

#include <span>
#include <string>

#include "harness/claims/check.h"
#include "harness/claims/claims.h"

namespace kv::claims {

// Claim files must outlive it.
struct FigureResult : Outcome {
  const ClaimFile* file;
  const Claim* claim;
  const Statement* statement;
};

// The text of claims.csv: kClaimTable.
std::string claims_csv(std::span<const FigureResult> figures);

}  // namespace kv::claims
