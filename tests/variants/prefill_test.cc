// prefill=full: a prompt's queries read its rows as they came; all later steps read what is stored.
#include "variants/cache/prefill.h"

#include <gtest/gtest.h>

#include "tests/variants/contract.h"

namespace kv::prefill_test {
namespace {

using namespace contract;

constexpr int64_t kPrompt = 150;
const CacheShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 64, .max_tokens = 200};

class EveryCodec : public testing::TestWithParam<const CodecEntry*> {};

TEST_P(EveryCodec, ReadsAPromptInFullAndStoresItAlike) {
  const std::string name(GetParam()->name);
  const Tokens all = make_tokens(kShape, kPrompt + 40, 3), prompt = slice(kShape, all, 0, kPrompt);
  memory::Ledger ledgers[3];
  const auto exact = build_cache(parse_spec("contiguous"), kShape, ledgers[0]),
             stored = build_cache(parse_spec("paged(block=32)/" + name), kShape, ledgers[1]),
             full = build_cache(parse_spec("paged(block=32)/" + name + "(prefill=full)"), kShape, ledgers[2]);
  const SequenceId id = exact->add_sequence(), a = stored->add_sequence(), b = full->add_sequence();
  const std::vector<float> want = step(*exact, id, all, 0, kPrompt),
                           of_stored = step(*stored, a, all, 0, kPrompt);
  EXPECT_EQ(step(*full, b, all, 0, kPrompt), want) << "to the bit";
  const bool is_encoded = GetParam()->make(default_stage(*GetParam())).k != Encoding{};
  if (is_encoded) {
    EXPECT_GT(relative_l2(of_stored, want), 1e-5);
  }
  // A chunk behind the prompt, then one by one: as if the prompt had read what is stored.
  for (const int64_t n : {38, 1, 1}) {
    const int64_t first = stored->tokens(a, 0);
    EXPECT_EQ(step(*full, b, all, first, n), step(*stored, a, all, first, n));
  }
  EXPECT_EQ(held_bytes(ledgers[2]), held_bytes(ledgers[1]));
  EXPECT_EQ(full->kernel().find(" of unstored rows") != std::string::npos, is_encoded) << full->kernel();
}

TEST_P(EveryCodec, IsRefusedWhereAPromptDoesNotSeeItsRowsAtOnce) {
  const std::string codec = std::string(GetParam()->name) + "(prefill=full)";
  const auto reason = [&](const std::string& spec) { return unsupported_reason(parse_spec(spec)); };
  EXPECT_EQ(reason("contiguous/" + codec), "");
  EXPECT_NE(reason("contiguous/" + codec + "/snapkv"), "");
  EXPECT_NE(reason("contiguous/" + codec + "/ring"), "");
  EXPECT_NE(reason("contiguous/" + codec + "/quest"), "");
  EXPECT_EQ(
      reason("tiered/" + codec),
      "prefill=full lets a prompt attend to all of its rows at once, but tiers read them a chunk at a time");
}

INSTANTIATE_TEST_SUITE_P(Prefill, EveryCodec, testing::ValuesIn(kCodecs),
                         [](const auto& of) { return std::string(of.param->name); });

// A prompt beside a decode step, whose rows the Hadamard transform has changed.
TEST(Prefill, OnlyPromptsOfABatchReadTheirOwnRows) {
  const Tokens all = make_tokens(kShape, 60, 5);
  memory::Ledger ledgers[2];
  const auto exact = build_cache(parse_spec("contiguous"), kShape, ledgers[0]);
  CacheShape two = kShape;
  two.max_sequences = 2;
  const auto cache =
      build_cache(parse_spec("contiguous/q4_0(rotate=hadamard,prefill=full)"), two, ledgers[1]);
  const SequenceId id = exact->add_sequence(), old = cache->add_sequence(), young = cache->add_sequence();
  step(*cache, old, all, 0, 59);
  const Tokens one = slice(kShape, all, 59, 1), prompt = slice(kShape, all, 0, 40);
  std::vector<float> of_one(one.q.size()), of_prompt(prompt.q.size());
  const StepInput both[] = {{old, 1, one.q.data(), one.k.data(), one.v.data(), of_one.data()},
                            {young, 40, prompt.q.data(), prompt.k.data(), prompt.v.data(), of_prompt.data()}};
  cache->step(0, both);
  EXPECT_EQ(of_prompt, step(*exact, id, all, 0, 40));
  step(*exact, id, all, 40, 19);
  const double error = relative_l2(of_one, step(*exact, id, all, 59, 1));
  EXPECT_LT(0.02, error) << "4 bits";
  EXPECT_LT(error, 0.3);
}

}  // namespace
}  // namespace kv::prefill_test
