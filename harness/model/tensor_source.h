// A source of a model's tensors, by their names in a Hugging Face folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/model/family.h"
#include "harness/model/weights.h"

namespace kv::model {

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  virtual bool has(const std::string& name) const = 0;
  // True if the file states both and they differ.
  virtual bool differ(const std::string& a, const std::string& b) = 0;
  // [rows, cols], which lives as long as this object.
  virtual WeightMatrix matrix(const std::string& name, int64_t rows, int64_t cols) = 0;
  virtual std::vector<float> vector(const std::string& name, const std::vector<int64_t>& shape) = 0;

  // Columns first, first + step, … of one of the matrices of a tensor [matrices, in, out] or [in, out].
  struct Columns {
    std::vector<int64_t> shape;
    int64_t matrix, first, step, n;
  };
  // Those as rows, [n, in], for weights that multiply from the right.
  virtual WeightMatrix transposed(const std::string& name, const Columns& columns) = 0;
};

// All weights of a model of this config.json, without a path and `files`.
ModelWeights load_tensors(const HuggingFaceConfig& config, TensorSource& tensors);

}  // namespace kv::model
