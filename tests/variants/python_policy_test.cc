// The retention `python` keeps what a policy in C++ keeps that scores tokens likewise.
#include "tests/message_of.h"
#include "tests/variants/retention_scene.h"

namespace kv {
namespace {

using namespace retention_tests;

// The tokens in each slot at the end, by head.
std::vector<std::vector<int64_t>> kept(const std::string& retention, const Tokens& all,
                                       const std::vector<int64_t>& chunks) {
  const Observed seen = observe(parse_spec("contiguous/f32/" + retention), kShape, all, chunks);
  std::vector<std::vector<int64_t>> last;
  for (const auto& head : seen.kept) last.push_back(head.back());
  return last;
}

TEST(Python, KeepsWhatTheSameRuleInCppKeeps) {
  const Tokens all = read_tokens("heavy", kShape, 300, 4);
  const std::pair<const char*, const char*> same[] = {
      {"tova(budget=40)", "python(attention,budget=40,when=step,attention=newest)"},
      {"h2o(heavy=24,recent=16)", "python(attention,budget=40,recent=16,when=step,attention=all)"},
      {"snapkv(budget=40,window=16,kernel=1)",
       "python(attention,budget=40,recent=16,window=16,attention=newest)"}};
  for (const auto& [cpp, python] : same) {
    for (const std::vector<int64_t>& chunks : {std::vector<int64_t>{300}, {70, 1, 29, 200}})
      EXPECT_EQ(kept(python, all, chunks), kept(cpp, all, chunks)) << python;
  }
}

TEST(Python, SeesKeysAsTheyWereBeforeRope) {
  Tokens raw = make_tokens(kShape, 200, 5), after = raw;
  std::vector<float> angles(static_cast<size_t>(kShape.head_dim));
  for (int64_t row = 0; row < kShape.kv_heads * 200; ++row) {
    float* const k = after.k.data() + row * kShape.head_dim;
    rope_angles(kShape.rope, kShape.head_dim, row % 200, angles.data());
    rotate(kShape.rope.pairs, kShape.head_dim, angles.data(), k, k);
  }
  for (const char* when : {"", ",when=step"}) {
    const std::string python = "python(key,budget=50" + std::string(when);
    EXPECT_EQ(kept(python + ",keys=before)", after, {200}), kept(python + ")", raw, {200}));
    EXPECT_NE(kept(python + ")", after, {200}), kept(python + ")", raw, {200}));
  }
}

TEST(Python, SparesSinksAndRecentTokens) {
  const Tokens all = make_tokens(kShape, 200, 6);
  for (const char* when : {"prompt", "step", "7"}) {
    const auto heads =
        kept("python(norm,budget=40,sinks=3,recent=9,when=" + std::string(when) + ")", all, {200});
    for (const std::vector<int64_t>& tokens : heads) {
      const std::set<int64_t> own(tokens.begin(), tokens.end());
      EXPECT_EQ(own.size(), 40u);
      for (const int64_t token : {0, 1, 2, 191, 195, 199}) EXPECT_TRUE(own.contains(token)) << when << token;
    }
  }
}

TEST(Python, IsCalledAtEachCut) {
  const Tokens all = make_tokens(kShape, 200, 7);
  for (const auto& [when, calls] : {std::pair{"prompt", 1}, {"step", 161}, {"16", 11}}) {
    memory::Ledger ledger;
    const auto cache = build_cache(
        parse_spec("contiguous/python(norm,budget=40,when=" + std::string(when) + ")"), kShape, ledger);
    drive(*cache, cache->add_sequence(), all, std::vector<int64_t>{200});
    EXPECT_EQ(ledger.calls().count, calls) << when;
  }
}

TEST(Python, MistakesAreOneLine) {
  const auto message = [](const char* spec) {
    return message_of<std::exception>([&] {
      memory::Ledger ledger;
      const auto cache = build_cache(parse_spec(spec), kShape, ledger);
      drive(*cache, cache->add_sequence(), make_tokens(kShape, 99, 8), std::vector<int64_t>{99});
    });
  };
  EXPECT_EQ(message("contiguous/python(fails,budget=40)"), "fails");
  EXPECT_EQ(message("contiguous/python(norm,budget=40,sinks=30,recent=10)"),
            "python: budget (40 rows) must have room for sinks, recent and what a call drops: 41");
  EXPECT_NE(message("contiguous/python(norm,when=now)").find("'when' takes prompt|step|1…65536"),
            std::string::npos);
}

TEST(Python, ItsFileStandsFirst) {
  for (const char* spec :
       {"contiguous/f32/python(a/b.py:f,budget=40)", "contiguous/python(file=a/b.py:f,budget=40)"})
    EXPECT_EQ(parse_spec(spec).print(), "contiguous/python(a/b.py:f,budget=40)");
  EXPECT_EQ(parse_spec("paged/python_codec(file=a/b.py)").print(), "paged/python_codec(a/b.py)");
  EXPECT_EQ(unsupported_reason(parse_spec("tiered/python_codec")),
            "a codec in Python leaves its rows decoded in memory: there is nothing for tiers");
}

}  // namespace
}  // namespace kv
