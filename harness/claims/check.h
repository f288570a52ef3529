// Holds one published figure against what is computed and what is measured, and gives the verdict.
//
// The rule, the same for every claim: a value agrees if it lies in the figure's window (figure.h), a measured
// one if all of its 95 % interval does, and contradicts it if all of it lies outside. A figure is reproduced
// if everything that there is agrees, and contradicted if anything contradicts it. What straddles the
// window's edge, or could not run, is not testable here. Documents write MB for 2^20 bytes and K for 1024
// tokens; a figure that comes out under one such reading for everything in it is reproduced, and the reason
// says under which.
#pragma once

#include <optional>
#include <string>

#include "harness/claims/claims.h"
#include "harness/claims/quantities.h"
#include "harness/math/stats.h"
#include "harness/tables/closed_form.h"

namespace kv::claims {

inline constexpr const char* kReproduced = "reproduced";
inline constexpr const char* kContradicted = "contradicted";
inline constexpr const char* kNotTestable = "not testable here";

struct Outcome {
  std::string verdict, reason;
  // In the figure's unit, the latter with its interval; empty where there is none.
  std::string computed = {}, measured = {};
  // In the base unit.
  std::optional<double> computed_value = {}, measured_value = {};
  std::optional<math::ConfidenceInterval> interval = {};
};

// Throws std::invalid_argument (file, line, what would be right) where the statement cannot be evaluated as
// it is written.
Outcome check(const Statement& statement, const Quantities& quantities, tables::CountedBytes& counted);

}  // namespace kv::claims
