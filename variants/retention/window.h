// The last `window` tokens, the query's own included, and the first `sinks`: the oldest that are not sinks go, one by one
// or in the codec's units (variants/core/unit_ring.h). The number of tokens alone says which token a slot holds, so slots
// have no metadata.
#pragma once

#include <algorithm>
#include <numeric>

#include "variants/core/entry.h"
#include "variants/core/unit_ring.h"
#include "variants/retention/counted.h"

namespace kv {

class Window : public Counted {
 public:
  explicit Window(const UnitRing& ring) : ring_(ring) {}
  std::unique_ptr<Retention> clone() const override { return std::make_unique<Window>(*this); }

  int64_t admit(std::span<const float>) override { return ring_.row_of(count_++); }
  int64_t token_at(int64_t slot) const override { return ring_.token_at(slot, count_); }
  int64_t slots_after(int64_t tokens) const override { return ring_.rows(tokens); }
  std::vector<int64_t> oldest_first() const override {
    std::vector<int64_t> order(static_cast<size_t>(slots()));
    std::iota(order.begin(), order.end(), int64_t{0});
    const auto [begin, oldest, end] = ring_.order(count_);
    std::rotate(order.begin() + begin, order.begin() + oldest, order.begin() + end);
    return order;
  }
  Slice next(int64_t remaining) override {
    return {.tokens = std::clamp<int64_t>(ring_.undisturbed(count_ + 1) - count_, 1, remaining)};
  }
  int64_t earliest() const override { return ring_.drops(count_) ? count_ : 0; }

 private:
  UnitRing ring_;
};

}  // namespace kv
