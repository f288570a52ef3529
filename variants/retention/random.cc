// random: the control. Every slot is equally likely to be overwritten; the newest token is always there for
// its own query. A policy that does not beat this one has learnt nothing from what it scores.
//
// The draw is a function of (seed, layer, kv head, token) alone: a run can be repeated, forks draw alike, and
// heads forget different tokens. splitmix64 (Steele, Lea, Flood 2014) mixes.
#include <algorithm>

#include "variants/list.h"
#include "variants/retention/evicting.h"

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

class Random : public EvictingPolicy<Random, SlotScores::kNone> {
 public:
  Random(const Stage& stage, const RetentionContext& context)
      : EvictingPolicy(stage, context),
        stream_(
            stream_of(static_cast<uint64_t>(stage.integer("seed")), static_cast<uint64_t>(context.head))) {}

 private:
  int64_t victim() const override {
    const uint64_t bits = mix(stream_ + (static_cast<uint64_t>(count()) + 1) * kGolden);
    return static_cast<int64_t>(((bits >> 32) * static_cast<uint64_t>(budget())) >> 32);
  }

  uint64_t stream_;
};

}  // namespace

const RetentionEntry random = Random::entry(
    {.name = "random",
     .help = "drops tokens at random: the control of every other policy",
     .source = "",
     .parameters = {budget_parameter(), Parameter::integer("seed", "0", 0, 999999999, {}, "of the draws")}});

}  // namespace kv::retention
