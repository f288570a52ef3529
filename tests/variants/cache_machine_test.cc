// Every spec of the registry as a state machine.
#include "tests/variants/cache_machine.h"

namespace kv {
namespace {

using namespace cache_machine;

class CacheMachine : public testing::TestWithParam<Spec> {};

INSTANTIATE_TEST_SUITE_P(All, CacheMachine, testing::ValuesIn(sampled(machines())), test_name);

// KVLAB_SEED draws other operations. Few specs share a pool or move rows between tiers: these play for longer.
TEST_P(CacheMachine, EverySequenceIsThatOfAReplay) {
  const CacheShape shape = shape_of(GetParam());
  const bool plain = GetParam().codec.name == "f32" || GetParam().codec.name == "f16";
  const size_t games = shape.max_tokens < 100 ? 12 : shape.max_tokens < 300 ? 1 : plain ? 20 : 3;
  const char* wanted = std::getenv("KVLAB_SEED");
  uint64_t seed = wanted ? std::strtoull(wanted, nullptr, 10) : 1;
  for (const char c : GetParam().print()) seed = (seed ^ static_cast<uint64_t>(c)) * 0x100000001b3;
  for (size_t game = 0; game < games && !HasFailure(); ++game)
    EXPECT_EQ(shortest_failure(GetParam(), random_operations(seed + game, games == 12 ? 400 : 20)), "");
}

}  // namespace
}  // namespace kv
