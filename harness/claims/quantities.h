// What runs of the driver have measured, looked up the way claims name it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/claims/claims.h"
#include "harness/math/stats.h"

namespace kv::claims {

// Why there is no value: the cell did not run, with its own reason.
class NotMeasured : public std::runtime_error {
  using runtime_error::runtime_error;
};

struct Measured {
  std::vector<double> values;  // one a repetition where `take` says what of it, else one a seed
  // Of a single value, where the run has put one beside it: columns NAME_ci_low and NAME_ci_high.
  std::optional<math::ConfidenceInterval> interval;
};

class Quantities {
 public:
  // The results folders of a run: one, or one a seed.
  void add(const std::string& run, std::vector<std::filesystem::path> folders);

  // Throws std::invalid_argument where no cell or several are meant, NotMeasured where the cell has no value.
  Measured find(const Quantity& quantity) const;

 private:
  struct Folder;
  const std::vector<std::shared_ptr<Folder>>& folders(const std::string& run) const;

  std::map<std::string, std::vector<std::shared_ptr<Folder>>> runs_;
};

}  // namespace kv::claims
