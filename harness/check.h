// Holds one published figure against what is computed and what is measured, and gives the verdict.
//
// The rule, the same for every claim: a value agrees if it lies in the figure's window (figure.h), a measured
// one if all of its 95 % interval does, and contradicts it if all of it lies outside. A figure is reproduced
// if everything that there is agrees, and contradicted if anything contradicts it. What straddles the
// window's edge, or could not run, is not testable here. Documents write MB for 2^20 bytes and K for 1024
// tokens; a figure that comes out under one such reading for everything in it is reproduced, and the reason
// says under which.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "harness/claims.h"
#include "harness/quantities.h"
#include "harness/stats.h"

namespace kv {

inline constexpr const char* kReproduced = "reproduced";
inline constexpr const char* kContradicted = "contradicted";
inline constexpr const char* kNotTestable = "not testable here";

struct Outcome {
  std::string verdict, reason;
  std::string computed,
      measured;  // in the figure's unit, the latter with its interval; empty where there is none
  std::optional<double> computed_value, measured_value;  // in the base unit
  std::optional<ConfidenceInterval> interval;
};

class Checker {
 public:
  // Caches up to `ledger_limit_bytes` are filled and counted.
  Checker(const Quantities& quantities, int64_t ledger_limit_bytes)
      : quantities_(quantities), ledger_limit_bytes_(ledger_limit_bytes) {}

  // Throws std::invalid_argument (file, line, what would be right) where the statement cannot be evaluated as
  // it is written.
  Outcome check(const Statement& statement);

 private:
  friend class Evaluation;
  std::optional<int64_t> counted_bytes(const struct CacheSize& size);

  const Quantities& quantities_;
  int64_t ledger_limit_bytes_;
  std::map<std::string, std::optional<int64_t>> counted_;  // the same cache is in several figures of a row
};

}  // namespace kv
