// Users' functions: one that scores tokens, as the retention `python` calls it, or two that encode and decode rows, as the
// codec `python_codec` does. The harness runs them, and says here how they are opened (harness/functions).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace kv {

// The kept rows of a layer, each head's in the order of their tokens. All heads keep the same number.
struct TokensToScore {
  int kv_heads = 0, key_dim = 0, value_dim = 0;
  int64_t tokens = 0;
  std::vector<float> k = {}, v = {};   // [kv_heads, tokens, key_dim or value_dim], before any codec
  std::vector<float> attention = {};   // [kv_heads, tokens], or none
  std::vector<int32_t> position = {};  // [kv_heads, tokens]
};

class UserFunction {
 public:
  virtual ~UserFunction() = default;
  // Both throw std::runtime_error with one line where the function fails. Threads may call them at once.
  // Scores [kv_heads, tokens], none NaN.
  virtual std::vector<float> score(const TokensToScore& tokens) = 0;
  // Replaces rows [n, row_values] by what they decode to, each on its own; returns the bytes of all of their codes.
  virtual int64_t recode(std::span<float> rows, int row_values) = 0;
};

// Opens "FILE:FUNCTION", or "FILE:ENCODE+DECODE". Throws std::invalid_argument if that is none.
using OpenFunction = std::shared_ptr<UserFunction> (*)(const std::string& function);
inline OpenFunction open_function = nullptr;  // null: this program calls no functions

}  // namespace kv
