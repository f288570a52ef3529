// ring: the last `window` tokens, the query's own included, and the first `sinks`; each new token overwrites
// the oldest one that is not a sink. Memory and the cost of a step stay constant, whatever has passed
// through.
//
// sinks=0 is sliding-window attention (Beltagy et al. 2020, arXiv:2004.05150). With sinks and positions=cache
// it is StreamingLLM (Xiao et al. 2024, arXiv:2309.17453), which rotates cached keys by their position in
// the cache; with positions=absolute keys keep the rotation they came with, so sinks drift ever farther away.
//
// Which token a slot holds follows from the number of tokens alone, so nothing is stored a slot.
#include <algorithm>
#include <numeric>

#include "variants/list.h"
#include "variants/retention/positions.h"

namespace kv::retention {
namespace {

class Ring : public Retention {
 public:
  Ring(int64_t window, int64_t sinks) : window_(window), sinks_(sinks) {}
  std::unique_ptr<Retention> clone() const override { return std::make_unique<Ring>(*this); }

  int64_t admit(std::span<const float>) override {
    const int64_t token = count_++;
    return token < sinks_ ? token : sinks_ + (token - sinks_) % window_;
  }
  int64_t slots() const override { return slots_after(count_); }
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
  void truncate(int64_t tokens) override { count_ = tokens; }
  void save(Writer& to) const override { to.put(count_); }
  bool load(Reader& from, int64_t tokens) override {
    count_ = from.get<int64_t>();
    return count_ == tokens;
  }

 private:
  int64_t window_, sinks_;
  int64_t count_ = 0;
};

std::unique_ptr<Retention> make(const Stage& stage, const RetentionContext& context) {
  return std::make_unique<Ring>(stage.rows("window", context.max_tokens), stage.integer("sinks"));
}
int64_t slots(const Stage& stage, const SequenceLengths& lengths) {
  return std::min(lengths.tokens, stage.rows("window", lengths.max_tokens) + stage.integer("sinks"));
}
int64_t metadata_bytes(const Stage&, int64_t) { return 0; }

}  // namespace

const RetentionEntry ring{
    {.name = "ring",
     .help = "the last `window` tokens and the first `sinks`, in constant memory",
     .source = "sliding window (arXiv:2004.05150), StreamingLLM (arXiv:2309.17453)",
     .parameters = {Parameter::rows("window", "1024", {24},
                                    "newest tokens kept, the query's own included; model: the layer's window")
                        .or_word("model"),
                    Parameter::integer("sinks", "0", 0, 65536, {4}, "first tokens kept for good"),
                    positions_parameter()}},
    make,
    slots,
    metadata_bytes,
    /*keeps_all=*/false};

}  // namespace kv::retention
