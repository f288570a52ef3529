// The registry's product, and its refusals.
#include "tests/variants/contract.h"

namespace kv {
namespace {

using namespace contract;

constexpr CacheShape kRegistryShape{
    .layers = 1, .q_heads = 2, .kv_heads = 2, .head_dim = 64, .max_tokens = 192, .max_sequences = 4};

// The sanitizers run these.
TEST(Registry, EachTwoStagesMeetInFewOfTheProduct) {
  const std::vector<Spec> all = supported_specs(false), few = supported_specs(true);
  EXPECT_LT(few.size(), all.size() * 6 / 10);
  const auto meets = [&](const Spec& wanted, Stage Spec::*a, Stage Spec::*b) {
    return std::any_of(few.begin(), few.end(),
                       [&](const Spec& spec) { return spec.*a == wanted.*a && spec.*b == wanted.*b; });
  };
  for (const Spec& spec : all) {
    EXPECT_TRUE(meets(spec, &Spec::placement, &Spec::codec)) << spec.print();
    EXPECT_TRUE(meets(spec, &Spec::placement, &Spec::retention)) << spec.print();
    EXPECT_TRUE(meets(spec, &Spec::codec, &Spec::retention)) << spec.print();
    EXPECT_TRUE(meets(spec, &Spec::codec, &Spec::selection)) << spec.print();
  }
}

// The gate runs such a sample, chosen by the commit's hash.
TEST(Registry, SamplesHaveSpecsAndTogetherAllOfThem) {
  const std::vector<Spec> specs = supported_specs(true);
  for (const uint64_t of : {1, 5, 6}) {
    std::set<std::string> met;
    for (uint64_t seed = 0xfffffff; seed < 0xfffffff + of; ++seed) {
      const std::vector<Spec> some = sample(specs, seed, of);
      EXPECT_GE(some.size(), specs.size() / of);
      for (const Spec& spec : some) EXPECT_TRUE(met.insert(spec.print()).second) << spec.print();
    }
    EXPECT_EQ(met.size(), specs.size());
  }
}

TEST(Registry, WhatCannotWorkIsRefusedWithAReason) {
  memory::Ledger ledger;
  for (const Spec& spec : all_specs()) {
    const std::string reason = unsupported_reason(spec);
    if (reason.empty()) continue;
    EXPECT_THROW(build_cache(spec, kRegistryShape, ledger), std::invalid_argument) << spec.print();
  }
}

TEST(Registry, BadShapesAreRefused) {
  memory::Ledger ledger;
  const Spec spec = parse_spec("contiguous");
  for (const CacheShape& bad :
       {CacheShape{.layers = 0}, CacheShape{.q_heads = 3, .kv_heads = 2}, CacheShape{.kv_heads = 0},
        CacheShape{.head_dim = 12}, CacheShape{.head_dim = 0}, CacheShape{.head_dim = 4096},
        CacheShape{.max_tokens = 0}, CacheShape{.max_sequences = 0}}) {
    EXPECT_THROW(build_cache(spec, bad, ledger), std::invalid_argument);
  }
}

}  // namespace
}  // namespace kv
