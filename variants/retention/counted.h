// Policies whose state is the number of tokens alone.
#pragma once

#include "variants/core/retention.h"

namespace kv {

class Counted : public Retention {
 public:
  int64_t slots() const final { return slots_after(count_); }
  void truncate(int64_t tokens) final { count_ = tokens; }
  void save(Writer& to) const final { to.put(count_); }
  bool load(Reader& from, int64_t tokens) final {
    count_ = from.get<int64_t>();
    return count_ == tokens;
  }

 protected:
  int64_t count_ = 0;
};

// Every token is kept, token i in slot i.
class KeepsAll : public Counted {
 public:
  std::unique_ptr<Retention> clone() const override { return std::make_unique<KeepsAll>(*this); }
  int64_t admit(std::span<const float>) final { return count_++; }
  int64_t token_at(int64_t slot) const final { return slot; }
  int64_t slots_after(int64_t tokens) const final { return tokens; }
};

}  // namespace kv
