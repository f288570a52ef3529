// In the place of users' functions: a token's attention, its key's first number, or the norm of its value.
#pragma once

#include <cmath>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "variants/core/user_function.h"

namespace kv::contract {

class NamedFunction : public UserFunction {
 public:
  explicit NamedFunction(std::string name) : name_(std::move(name)) {}
  std::vector<float> score(const TokensToScore& all) override {
    std::vector<float> scores;
    for (int64_t i = 0; i < std::ssize(all.position); ++i) {
      if (i % all.tokens > 0 && all.position[i] <= all.position[i - 1]) throw std::runtime_error("no order");
      float norm = 0.0f;
      for (int x = 0; x < all.value_dim; ++x) norm += std::abs(all.v[i * all.value_dim + x]);
      scores.push_back(name_ == "attention" ? all.attention[i]
                       : name_ == "key"     ? all.k[i * all.key_dim]
                       : name_ == "fails"   ? throw std::runtime_error("fails")
                                            : norm);
    }
    return scores;
  }
  int64_t recode(std::span<float> rows, int) override { return std::ssize(rows); }

 private:
  std::string name_;
};
inline const bool kCallsFunctions = (
    open_function = [](const std::string& name) -> std::shared_ptr<UserFunction> {
      return std::make_shared<NamedFunction>(name);
    },
    true);

}  // namespace kv::contract
