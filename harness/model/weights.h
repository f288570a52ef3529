// The weights of a model, as they lie in its mapped files, whoever wrote those.
#pragma once

#include <Eigen/Core>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/model/model.h"
#include "kernels/cpu/weights/weight_type.h"

namespace kv::model {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// A matrix [rows, cols] in a mapped file or in memory, of any type of weights and at any address; blocks lie within rows. A
// row belongs to one output. It is widened in registers, or some rows at a time, as it is multiplied, so a model of 4 bits
// never takes 32 bits a weight.
class WeightMatrix {
 public:
  using Type = cpu::WeightType;

  WeightMatrix() = default;
  WeightMatrix(const std::byte* data, Type type, int64_t rows, int64_t cols)
      : data_(data), type_(type), rows_(rows), cols_(cols) {}

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t bytes() const { return rows_ * row_bytes(); }
  Type type() const { return type_; }
  const std::byte* data() const { return data_; }
  // Rows [first, first + n), sharing the data.
  WeightMatrix part(int64_t first, int64_t n) const { return {data_ + first * row_bytes(), type_, n, cols_}; }
  // The same matrix of bf16, for which `x` of a product is rounded to bf16 too: oneDNN then multiplies with the machine's
  // instructions for it, twice as fast, and sums in f32.
  WeightMatrix in_bf16() const;
  // Rows [first, first + n) as f32, to [n, cols].
  void read(int64_t first, int64_t n, float* to) const;
  // x [n, cols] to x Wᵀ [n, rows]. Each output is the same sum whatever the number of threads and whatever rows are
  // beside its own; of 16-bit weights, from 9 rows of x on.
  Matrix apply(const Matrix& x) const;

 private:
  // Rows that a thread multiplies at a time: few enough that two threads have equal parts of 576.
  static constexpr int64_t kBlockRows = 48;
  // x [n, cols], and the same in bf16 or packed, where a product reads that instead.
  struct Factor {
    const Matrix* x;
    const uint16_t* narrow = nullptr;
    const float* packed = nullptr;
  };
  friend std::vector<Matrix> apply_all(std::span<const WeightMatrix* const> weights, const Matrix& x);

  int64_t row_bytes() const { return cols_ / cpu::layout_of(type_).values * cpu::layout_of(type_).bytes; }
  bool is_plain_read(int64_t tokens) const;
  // Outputs [first, first + kBlockRows) into those columns of y [n, rows].
  void apply_block(const Factor& factor, int64_t first, float* y) const;

  const std::byte* data_ = nullptr;
  Type type_ = Type::kF32;
  bool in_bf16_ = false;
  int64_t rows_ = 0, cols_ = 0;
};

// x Wᵀ of each of these matrices, which threads form together. All are in_bf16() or none.
std::vector<Matrix> apply_all(std::span<const WeightMatrix* const> weights, const Matrix& x);

struct ExpertWeights {
  WeightMatrix gate{}, up{}, down{};              // [hidden_dim, dim]; down the other way round
  std::vector<float> b_gate{}, b_up{}, b_down{};  // biases of their outputs
};

// Members that a family lacks are empty.
struct LayerWeights {
  std::vector<float> attention_norm{}, ffn_norm{};            // [dim], before each
  std::vector<float> attention_norm_bias{}, ffn_norm_bias{};  // LayerNorm's
  std::vector<float> attention_out_norm{}, ffn_out_norm{};    // [dim], of what each adds to the residual
  std::vector<float> q_norm{}, k_norm{};                      // [head_dim], of every head
  // [heads * head_dim, dim]; wq of gated heads twice as many rows; wo the other way round.
  WeightMatrix wq{}, wk{}, wv{}, wo{};
  std::vector<float> bq{}, bk{}, bv{}, bo{};  // biases of their outputs
  WeightMatrix gate{}, up{}, down{};  // [hidden_dim, dim]; down the other way round. GPT-2 has no gate
  std::vector<float> b_gate{}, b_up{}, b_down{};
  WeightMatrix router{};          // [experts, dim]
  std::vector<float> b_router{};  // [experts]
  std::vector<ExpertWeights> experts{};
  // For a layer with recurrent state instead of K and V: its projections to q, k and v, to v's gate, step size and decay,
  // [outputs, dim], and back, [dim, values]; and what is between them (linear_rows.h).
  std::array<WeightMatrix, 4> recurrent_in{};
  WeightMatrix recurrent_out{};
  std::vector<float> convolution{};               // [kernel, channels], the oldest input first
  std::vector<float> decay_rate{}, decay_bias{};  // [value_heads]
  std::vector<float> state_norm{};                // [value_dim]
};

struct ModelWeights {
  std::string path;
  ModelConfig config;
  WeightMatrix embedding, classifier;                // [vocab_size, dim]; the same where they are tied
  WeightMatrix positions{};                          // [max_tokens, dim], where they are learned
  std::vector<float> embedding_norm{};               // [dim], of the embedding
  std::vector<float> final_norm, final_norm_bias{};  // [dim]
  std::vector<LayerWeights> layers;
  std::shared_ptr<const void> files;  // the matrices point into them

  // The matrices of a step, each once.
  std::vector<const WeightMatrix*> products() const;
  // From now on these are multiplied in bf16, all but a mixture's router and experts. Those of other types are rounded once,
  // into memory. Throws std::invalid_argument where the machine cannot, or where they take more than `memory_bytes`.
  void multiply_in_bf16(int64_t memory_bytes);
};

// A Hugging Face folder (config.json and .safetensors).
// Throws std::invalid_argument: one line with what is wrong, where, and what would be right; also if the
// weights take more than memory_bytes.
ModelWeights load_hugging_face(const std::string& folder, int64_t memory_bytes);

// Throws std::invalid_argument with both numbers if a model's weights do not fit.
void check_fits(const std::string& path, int64_t weight_bytes, int64_t memory_bytes);

}  // namespace kv::model
