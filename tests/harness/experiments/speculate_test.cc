// Drafts with one cache, verified with another: the text is the one without drafts, whatever the draft cache loses.
#include "harness/experiments/speculate/drafting.h"

#include <gtest/gtest.h>

#include "harness/memory/ledger.h"
#include "harness/model/cached_model.h"
#include "tests/harness/model/tiny_hugging_face.h"

namespace kv::experiments {
namespace {

constexpr int64_t kWindow = 160, kTokens = 48;

const model::Model& tiny() {
  static const test::TinyModel file({.dim = 128, .hidden = 64, .vocab = 96, .seq_len = kWindow});
  static const model::Model model(file.path());
  return model;
}

std::vector<int> prompt() {
  std::vector<int> ids;
  for (int t = 0; t < 40; ++t) ids.push_back((t * t + 5 * t) % 96);
  return ids;
}

// A reader with a cache of its own.
struct Own {
  explicit Own(const char* spec)
      : cache(build_cache(parse_layer_specs(spec), model::cache_shape(tiny().config(), 1, kWindow), ledger)),
        reader(tiny(), *cache) {}

  memory::Ledger ledger;
  std::unique_ptr<Cache> cache;
  TextReader reader;
};

PlainText plain_text(const char* target) {
  Own own(target);
  return continue_plainly(own.reader, prompt(), kTokens);
}

DraftedText drafted_text(const char* draft, const char* target, int64_t tokens, const PlainText& plain) {
  Own drafts(draft), targets(target);
  const DraftedText text = continue_with_drafts(drafts.reader, targets.reader, prompt(), tokens, plain);
  EXPECT_EQ(text.failure, "") << draft << " for " << target;
  EXPECT_EQ(std::ssize(text.ids), kTokens);
  EXPECT_EQ(targets.cache->tokens(targets.reader.sequence(), 0), std::ssize(prompt()) + kTokens - 1);
  EXPECT_LE(drafts.cache->tokens(drafts.reader.sequence(), 0), std::ssize(prompt()) + kTokens - 1);
  return text;
}

TEST(Speculate, LeavesTheTextAsItIs) {
  for (const char* target : {"contiguous/f32", "paged/f16", "contiguous/q8_0"}) {
    const PlainText plain = plain_text(target);
    ASSERT_EQ(std::ssize(plain.ids), kTokens);
    for (const char* draft : {"contiguous/f16", "paged/q4_0", "contiguous/token(bits=2)", "doubling/turbo"}) {
      for (const int64_t tokens : {1, 3, 8}) {
        const DraftedText text = drafted_text(draft, target, tokens, plain);
        EXPECT_TRUE(text.rounded || text.ids == plain.ids) << draft << " for " << target;
        // A step gives its accepted tokens and one of its own.
        double stay = 1.0;
        for (const double share : text.shares) stay += 1.0 + share * static_cast<double>(tokens);
        EXPECT_LE(text.steps, kTokens - 1);
        EXPECT_GE(text.steps, (kTokens - 1 + tokens) / (tokens + 1));
        EXPECT_GE(stay, static_cast<double>(kTokens - tokens));
      }
    }
  }
}

TEST(Speculate, AcceptsEveryTokenOfTheTargetsOwnCache) {
  const PlainText plain = plain_text("contiguous/f32");
  for (const int64_t tokens : {1, 2, 5}) {
    const DraftedText text = drafted_text("contiguous/f32", "contiguous/f32", tokens, plain);
    EXPECT_FALSE(text.rounded);
    for (const double share : text.shares) EXPECT_EQ(share, 1.0);
    EXPECT_EQ(text.steps, (kTokens - 1 + tokens) / (tokens + 1));
  }
}

TEST(Speculate, ACoarseDraftIsAcceptedLess) {
  const PlainText plain = plain_text("contiguous/f32");
  const auto accepted = [&](const char* draft) {
    const DraftedText text = drafted_text(draft, "contiguous/f32", 4, plain);
    double sum = 0.0;
    for (const double share : text.shares) sum += share;
    return sum / static_cast<double>(text.shares.size());
  };
  EXPECT_GT(accepted("contiguous/q8_0"), accepted("contiguous/token(bits=2)"));
}

TEST(Speculate, NoticesAnotherText) {
  PlainText plain = plain_text("contiguous/f32");
  plain.ids[7] = (plain.ids[7] + 1) % 96;
  Own draft("contiguous/f16"), target("contiguous/f32");
  const DraftedText text = continue_with_drafts(draft.reader, target.reader, prompt(), 4, plain);
  EXPECT_NE(text.failure.find("leaves the text without drafts at token 7, whose margin is -"),
            std::string::npos)
      << text.failure;
}

TEST(Speculate, NeedsADraftCacheThatForgets) {
  const PlainText plain = plain_text("contiguous/f32");
  Own draft("contiguous/f16/ring(window=16)"), target("contiguous/f32");
  EXPECT_THROW(continue_with_drafts(draft.reader, target.reader, prompt(), 4, plain), std::invalid_argument);
}

}  // namespace
}  // namespace kv::experiments
