// Each pair of stages runs on four threads that share even the shortest loop. The thread sanitizer reports their races;
// every build checks that threads change no bit.
#include "tests/variants/contract.h"

namespace kv {
namespace {

using namespace contract;

constexpr CacheShape kShape{
    .layers = 1, .q_heads = 8, .kv_heads = 4, .head_dim = 32, .max_tokens = 96, .max_sequences = 3};

class Threads : public testing::TestWithParam<Spec> {};
INSTANTIATE_TEST_SUITE_P(All, Threads, testing::ValuesIn(sampled(supported_specs(true))), test_name);

// Steps all sequences with their tokens [first, first + n) and appends the outputs to `outs`.
void step_all(Cache& cache, std::span<const SequenceId> ids, std::span<const Tokens> all, int64_t first,
              int64_t n, std::vector<std::vector<float>>& outs) {
  std::vector<Tokens> parts;
  std::vector<StepInput> inputs;
  for (const Tokens& tokens : all) parts.push_back(slice(kShape, tokens, first, n));
  for (size_t i = 0; i < ids.size(); ++i) {
    outs.emplace_back(parts[i].q.size(), NAN);
    const Tokens& part = parts[i];
    inputs.push_back({ids[i], n, part.q.data(), part.k.data(), part.v.data(), outs.back().data()});
  }
  cache.step(0, inputs);
}

// A prompt, single tokens past the borders of groups and blocks, a fork and a chunk of a few tokens.
std::vector<std::vector<float>> outputs(const Spec& spec, int threads) {
  const ThreadsAtEveryLoop team(threads);
  memory::Ledger ledger;
  const auto cache = build_cache(spec, kShape, ledger);
  const std::vector<Tokens> all{make_tokens(kShape, 80, 1), make_tokens(kShape, 80, 2)};
  std::vector<SequenceId> ids{cache->add_sequence(), cache->add_sequence()};
  std::vector<std::vector<float>> outs;
  step_all(*cache, ids, all, 0, 60, outs);
  for (int64_t t = 60; t < 66; ++t) step_all(*cache, ids, all, t, 1, outs);
  ids[1] = cache->fork(ids[0]);
  step_all(*cache, ids, all, 66, 5, outs);
  return outs;
}

TEST_P(Threads, ChangeNoBit) { EXPECT_EQ(outputs(GetParam(), 4), outputs(GetParam(), 1)); }

}  // namespace
}  // namespace kv
