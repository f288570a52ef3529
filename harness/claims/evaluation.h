// A statement's expressions as numbers: names looked up, caches' bytes predicted and counted, measured
// quantities with their intervals, growth laws fitted.
#pragma once

#include <optional>
#include <string>

#include "harness/claims/claims.h"
#include "harness/claims/quantities.h"
#include "harness/math/medians.h"
#include "harness/tables/closed_form.h"

namespace kv::claims {

struct Evaluated {
  std::optional<double> computed;
  std::optional<math::Estimate> measured;
  bool measured_once = false;  // every quantity is one value without an interval: its spread is unknown
  std::string arithmetic;      // `computed` with numbers, for a reader who checks it by hand
  bool used_k = false;
};

// With K for `k`, and MB and GB for those of `unit`. Throws NotMeasured where a quantity has no value, std::invalid_argument
// where none or several are meant.
Evaluated evaluate(const Statement& statement, double k, const UnitReading& unit,
                   const Quantities& quantities, tables::CountedBytes& counted);

}  // namespace kv::claims
