// Measurements of the driver's runs, looked up as claims name them, and a statement's expressions as numbers: caches' bytes
// predicted and counted, measured quantities with their intervals, growth laws fitted.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/claims/claims.h"
#include "harness/math/medians.h"
#include "harness/math/stats.h"
#include "harness/tables/closed_form.h"

namespace kv::claims {

// There is no value, with the reason of the cell that did not run.
class NotMeasured : public std::runtime_error {
  using runtime_error::runtime_error;
};

struct Measured {
  std::vector<double> values;  // one a repetition with `take`, else one a seed
  // The interval of a single value that has columns NAME_ci_low and NAME_ci_high.
  std::optional<math::ConfidenceInterval> interval;
};

class Quantities {
 public:
  // The results folders of a run: one, or one a seed.
  void add(const std::string& run, const std::vector<std::filesystem::path>& folders);

  // Throws std::invalid_argument where no cell or several are meant, NotMeasured where the cell has no value.
  Measured find(const Quantity& quantity) const;

 private:
  struct Folder;
  std::map<std::string, std::vector<std::shared_ptr<Folder>>> runs_;
};

// The column's own name, which may be given by an alias; empty if cells.csv, or samples.csv and growth.csv, have no such column.
std::string cell_column(const std::string& name);
std::string sample_column(const std::string& name);
// The name of the column with the "low" or "high" end of a metric's interval, if there is one.
std::string interval_column(const std::string& metric, const std::string& end);

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
