// The last `window` tokens, the query's own included, and the first `sinks`: each new token overwrites the oldest one
// that is not a sink. The number of tokens alone says which token a slot holds, so slots have no metadata.
#pragma once

#include <algorithm>
#include <numeric>

#include "variants/core/entry.h"
#include "variants/retention/counted.h"

namespace kv {

class Window : public Counted {
 public:
  Window(int64_t window, int64_t sinks) : window_(window), sinks_(sinks) {}
  std::unique_ptr<Retention> clone() const override { return std::make_unique<Window>(*this); }

  int64_t admit(std::span<const float>) override {
    const int64_t token = count_++;
    return token < sinks_ ? token : sinks_ + (token - sinks_) % window_;
  }
  int64_t token_at(int64_t slot) const override {
    if (slot < sinks_) return slot;
    // Both counted from the first token after the sinks.
    const int64_t newest = count_ - 1 - sinks_, at = slot - sinks_;
    return sinks_ + newest - (newest - at) % window_;
  }
  int64_t slots_after(int64_t tokens) const override { return std::min(tokens, sinks_ + window_); }
  std::vector<int64_t> oldest_first() const override {
    std::vector<int64_t> order(static_cast<size_t>(slots()));
    std::iota(order.begin(), order.end(), int64_t{0});
    if (count_ > sinks_ + window_) {
      const auto first = order.begin() + sinks_;
      std::rotate(first, first + (count_ - sinks_) % window_, order.end());
    }
    return order;
  }
  Slice next(int64_t remaining) override {
    return {.tokens = std::clamp<int64_t>(sinks_ + window_ - count_, 1, remaining)};
  }
  int64_t earliest() const override { return count_ > sinks_ + window_ ? count_ : 0; }

 private:
  int64_t window_, sinks_;
};

}  // namespace kv
