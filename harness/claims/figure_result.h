// One published figure with its verdict: a row of claims.csv.
#pragma once

#include <span>
#include <string>

#include "harness/claims/check.h"
#include "harness/claims/claims.h"

namespace kv::claims {

// The claim files must outlive it.
struct FigureResult : Outcome {
  const ClaimFile* file;
  const Claim* claim;
  const Statement* statement;
};

// claims.csv: everything that reports show, so that they need no claim file. The columns `how` and `run` are for readers who
// want to check a figure again: the expressions with what their names stand for, and the sweep configs that they need.
std::string claims_csv(std::span<const FigureResult> figures);

}  // namespace kv::claims
