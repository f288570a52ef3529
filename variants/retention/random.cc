// random: the control. Every slot is equally likely to be overwritten; the newest token is always there for
// its own query. A policy that does not beat this one has learnt nothing from what it scores.
//
// The draw is a function of (seed, layer, kv head, token) alone: a run can be repeated, forks draw alike, and
// heads forget different tokens. splitmix64 (Steele, Lea, Flood 2014) mixes.
#include <algorithm>

#include "variants/list.h"
#include "variants/retention/evicting.h"
#include "variants/retention/positions.h"

namespace kv::retention {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// A hash of seed and head: each part is mixed in after the one before it.
uint64_t stream_of(uint64_t seed, uint64_t head) {
  const uint64_t first = mix(mix(seed + kGolden) + kGolden);
  return mix((first ^ mix(head + kGolden)) + kGolden);
}

class Random : public Evicting {
 public:
  Random(int64_t budget, int64_t seed, const RetentionContext& context)
      : Evicting(budget, context, SlotScores::kNone),
        stream_(stream_of(static_cast<uint64_t>(seed), static_cast<uint64_t>(context.head))) {}
  std::unique_ptr<Retention> clone() const override { return std::make_unique<Random>(*this); }

 private:
  int64_t victim() const override {
    const uint64_t bits = mix(stream_ + (static_cast<uint64_t>(count()) + 1) * kGolden);
    return static_cast<int64_t>(((bits >> 32) * static_cast<uint64_t>(budget())) >> 32);
  }

  uint64_t stream_;
};

std::unique_ptr<Retention> make_random(const Stage& stage, const RetentionContext& context) {
  return std::make_unique<Random>(stage.rows("budget", context.max_tokens), stage.integer("seed"), context);
}
int64_t random_slots(const Stage& stage, const SequenceLengths& lengths) {
  return std::min(lengths.tokens, stage.rows("budget", lengths.max_tokens));
}
int64_t random_metadata_bytes(const Stage& stage, int64_t max_tokens) {
  return Evicting::metadata_bytes(stage.rows("budget", max_tokens), max_tokens, SlotScores::kNone);
}

}  // namespace

const RetentionEntry random{
    {.name = "random",
     .help = "drops tokens at random: the control of every other policy",
     .source = "",
     .parameters = {Parameter::rows("budget", "256", {32}, "rows kept, the query's own included"),
                    Parameter::integer("seed", "0", 0, 999999999, {}, "of the draws"),
                    positions_parameter()}},
    make_random,
    random_slots,
    random_metadata_bytes,
    /*keeps_all=*/false};

}  // namespace kv::retention
