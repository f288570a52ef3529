// Every spec of the registry as a state machine.
#include "tests/variants/cache_machine.h"

namespace kv {
namespace {

using namespace cache_machine;

// The registry's product, and what moves rows between tiers, uses up a pool or empties its segments within a few tokens.
std::vector<Spec> machines() {
  std::vector<Spec> specs = supported_specs();
  for (const char* text :
       {"tiered(hot=100,warm=400)", "tiered(hot=1,warm=0)/q8_0", "tiered(hot=600,warm=0)/kivi",
        "tiered(hot=100,warm=600,warm_codec=q8_0,disk_codec=q4_0)",
        "tiered(hot=100,warm=600,warm_codec=q8_0)/f16", "tiered(hot=100,warm=600,disk_codec=token)/f16",
        "tiered(hot=1,warm=0)/f16/quest", "paged(block=4,pool=20)", "paged(block=4,pool=12)",
        "paged(block=4,pool=20,segment=5)", "paged(block=4,pool=20,segment=5,order=shuffled)"})
    specs.push_back(parse_spec(text));
  return specs;
}

class CacheMachine : public testing::TestWithParam<Spec> {};

INSTANTIATE_TEST_SUITE_P(All, CacheMachine, testing::ValuesIn(sampled(machines())), test_name);

// KVLAB_SEED draws other operations. Few specs share a pool or move rows between tiers: these play for longer.
TEST_P(CacheMachine, EverySequenceIsThatOfAReplay) {
  const CacheShape shape = shape_of(GetParam());
  const size_t games = shape.max_tokens < 100 ? 12 : shape.max_tokens > 300 ? 20 : 1;
  const char* wanted = std::getenv("KVLAB_SEED");
  uint64_t seed = wanted ? std::strtoull(wanted, nullptr, 10) : 1;
  for (const char c : GetParam().print()) seed = (seed ^ static_cast<uint64_t>(c)) * 0x100000001b3;
  for (size_t game = 0; game < games && !HasFailure(); ++game)
    EXPECT_EQ(shortest_failure(GetParam(), random_operations(seed + game, games == 12 ? 400 : 20)), "");
}

}  // namespace
}  // namespace kv
