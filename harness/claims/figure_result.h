// What became of one published figure: a row of claims.csv.
#pragma once

#include <string>

#include "harness/results/schema.h"

namespace kv::claims {

struct FigureResult {
  std::string source, claim, figure, check, replica, machine;
  std::string published, computed, measured;
  results::Number computed_value, measured_value, interval_low, interval_high;
  std::string verdict, reason, note;
  std::string text, title, document, where, quote, setting, how, run;

  bool is_exact() const { return replica == "exact"; }
  bool depends_on_machine() const { return machine == "yes"; }
};

const results::Schema<FigureResult>& figure_schema();

}  // namespace kv::claims
