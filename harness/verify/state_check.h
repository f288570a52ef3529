// Compares the outputs of linear layers with the FP64 recurrence over the same inputs.
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
  // `layers`: the model's layers, linear or not. Keeps about kMaxCheckedHeads (verify.h) heads, spread evenly.
  StateCheck(const LinearShape& shape, int layers);

  // Records the next tokens of one sequence in a linear layer, from its first on, with their outputs if they have
  // any.
  void record(int layer, const StepInput& in);
  // ||a - b|| / ||b|| of the last token's outputs; empty if nothing was recorded.
  std::optional<double> error() const;
  // Largest error of correct arithmetic: f32 throughout, as in attention over f32 rows.
  static constexpr double kBound = 1e-5;

 private:
  // One head's tokens.
  struct Head {
    std::vector<float> q, k, v, alpha, beta;
    std::vector<float> out;  // the last token's
  };

  LinearShape shape_;
  int every_;                                 // every so many heads, one is kept
  std::map<std::pair<int, int>, Head> kept_;  // by layer and value head
};

}  // namespace kv::verify
