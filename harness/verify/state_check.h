// Compares what linear layers answer with the FP64 recurrence over the same inputs.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "variants/cache/cache.h"
#include "variants/model_cache/linear_cache.h"

namespace kv::verify {

class StateCheck {
 public:
  // Of a model of `layers` layers, linear or not. At most about kMaxCheckedHeads (verify.h) heads are kept, spread evenly.
  StateCheck(const LinearShape& shape, int layers);

  // The next tokens of one sequence in a linear layer, from its first on, with their outputs where they have any.
  void record(int layer, const StepInput& in);
  // ||a - b|| / ||b|| of the last token's outputs; none where nothing was recorded.
  std::optional<double> error() const;
  // Above it the arithmetic is wrong: f32 throughout, as attention over f32 rows.
  static constexpr double kBound = 1e-5;

 private:
  // One head's tokens.
  struct Head {
    std::vector<float> q, k, v, alpha, beta;
    std::vector<float> out;  // of the last token
  };

  LinearShape shape_;
  int every_;                                 // which heads are kept
  std::map<std::pair<int, int>, Head> kept_;  // by layer and value head
};

}  // namespace kv::verify
