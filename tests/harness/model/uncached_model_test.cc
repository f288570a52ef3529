// A model without a cache says what one with a cache says, and keeps nothing but the text.
#include "harness/model/uncached_model.h"

#include "harness/memory/ledger.h"
#include "harness/model/cached_model.h"
#include "harness/model/sampling.h"
#include "tests/harness/model/tiny_hugging_face.h"
#include "variants/cache/cache.h"
#include "variants/cache/spec.h"

namespace kv {
namespace {

using model::CachedModel;
using model::UncachedModel;

// Rounding alone: the same products over other numbers of rows, and attention in tiles of a prompt.
constexpr double kLogitBound = 2e-5;

double relative_difference(const std::vector<float>& got, const std::vector<float>& want) {
  return test::largest_difference(got, want) / test::largest_difference(want, std::vector(want.size(), 0.0f));
}

// Two sequences, a prompt of 3 tokens, then one token a step.
void compare(const model::Model& model, const char* spec, int64_t length) {
  memory::Ledger with, without;
  const auto cache = build_cache(parse_spec(spec), cache_shape(model.config(), 2, length), with);
  CachedModel cached(model, *cache, 2);
  UncachedModel uncached(model, without, 2, length);
  EXPECT_EQ(uncached.sequence_count(), cached.sequence_count());
  std::mt19937 random(5);
  for (int64_t n = 3; cached.tokens() < length; n = 1) {
    std::vector<int> ids;
    for (int64_t i = 0; i < 2 * n; ++i)
      ids.push_back(static_cast<int>(random() % static_cast<unsigned>(model.config().vocab_size)));
    const std::vector<float> want = cached.step(ids, n), got = uncached.step(ids, n);
    EXPECT_LT(relative_difference(got, want), kLogitBound) << "after " << cached.tokens() << " tokens";
    EXPECT_EQ(uncached.tokens(), cached.tokens());
  }
}

TEST(UncachedModel, SaysWhatACacheSays) {
  const test::TinyModel file({.dim = 32, .seq_len = 40});
  compare(model::Model(file.path()), "contiguous/f32", 40);
}

TEST(UncachedModel, SeesNoMoreThanTheModelsWindow) {
  const test::TempFolder folder;
  test::TinyHuggingFace(nlohmann::json{{"model_type", "mistral"}, {"sliding_window", 6}})
      .write(folder.path());
  compare(model::Model(folder.path().string()), "contiguous/f32/ring(window=6)", 16);
}

TEST(UncachedModel, HoldsIdsAndNoMoreThanOneSequencesRowsOfOneLayer) {
  const test::TinyModel file({.dim = 32, .seq_len = 20});
  const model::Model model(file.path());
  memory::Ledger ledger;
  {
    UncachedModel uncached(model, ledger, 2, 20);
    for (const std::vector<int>& ids : {std::vector<int>{1, 2, 3, 4}, {5, 6}}) {
      uncached.step(ids, std::ssize(ids) / 2);
      EXPECT_EQ(ledger.payload().current_bytes, 0);
      EXPECT_EQ(ledger.payload().peak_bytes, uncached.tokens() * 2 * 16 * 4);
      EXPECT_EQ(ledger.metadata().current_bytes, 2 * 20 * 4);
      EXPECT_EQ(ledger.copied_bytes(), 0);
    }
  }
  ledger.assert_balanced();
}

TEST(UncachedModel, WritesTheSameText) {
  const test::TinyModel file({.dim = 32, .seq_len = 40});
  const model::Model model(file.path());
  const std::vector<int> prompts{1, 4, 2, 1, 9, 3};
  const auto never = [] { return false; };
  memory::Ledger with, without;
  const auto cache = build_cache(parse_spec("contiguous"), cache_shape(model.config(), 2, 40), with);
  CachedModel cached(model, *cache, 2);
  UncachedModel uncached(model, without, 2, 40);
  const model::Sampling sampling{.temperature = 1.0, .seed = 3};
  EXPECT_EQ(continue_prompts(uncached, prompts, 40, sampling, never),
            continue_prompts(cached, prompts, 40, sampling, never));
}

// Three samples of each of two prompts, with and without a cache, are the texts of three runs.
TEST(Samples, EqualRunsOfTheirOwnSeeds) {
  const test::TinyModel file({.dim = 32, .seq_len = 40});
  const model::Model model(file.path());
  const std::vector<int> prompts{1, 4, 2, 1, 9, 3};
  const auto never = [] { return false; };
  const auto write = [&](const char* spec, const model::Sampling& sampling) {
    memory::Ledger ledger;
    if (!spec) {
      UncachedModel uncached(model, ledger, 2, 40);
      return continue_prompts(uncached, prompts, 40, sampling, never);
    }
    const auto cache = build_cache(parse_spec(spec), cache_shape(model.config(), 6, 40), ledger);
    CachedModel cached(model, *cache, 2);
    return continue_prompts(cached, prompts, 40, sampling, never);
  };
  for (const char* spec : {"contiguous", "paged", "segmented(rows=8)", "doubling/bf16/ring(window=9)",
                           static_cast<const char*>(nullptr)}) {
    const std::vector<int> forked = write(spec, {.temperature = 1.0, .seed = 3, .samples = 3});
    ASSERT_EQ(forked.size(), 6u * 40);
    for (int sample = 0; sample < 3; ++sample) {
      const std::vector<int> alone =
          write(spec, {.temperature = 1.0, .seed = 3 + static_cast<uint64_t>(sample)});
      for (int s = 0; s < 2; ++s) {
        const auto from = forked.begin() + (s * 3 + sample) * 40;
        EXPECT_EQ(std::vector<int>(from, from + 40),
                  std::vector<int>(alone.begin() + s * 40, alone.begin() + (s + 1) * 40))
            << (spec ? spec : "none") << ", sample " << sample;
      }
    }
  }
}

TEST(UncachedModel, AStepThatIsRefusedTakesNoToken) {
  const test::TinyModel file({.dim = 32, .seq_len = 12});
  const model::Model model(file.path());
  memory::Ledger ledger, small(int64_t{20} * 4 + 100);
  UncachedModel uncached(model, ledger, 1, 12);
  uncached.step(std::vector<int>{1, 2}, 2);
  EXPECT_THROW(uncached.step(std::vector<int>{99}, 1), std::invalid_argument);
  EXPECT_THROW(uncached.step(std::vector<int>(11, 1), 11), std::logic_error);
  EXPECT_EQ(uncached.tokens(), 2);
  uncached.step(std::vector<int>{3}, 1);
  EXPECT_EQ(uncached.tokens(), 3);
  UncachedModel starved(model, small, 1, 12);
  EXPECT_THROW(starved.step(std::vector<int>{1, 2}, 2), std::bad_alloc);
  EXPECT_EQ(starved.tokens(), 0);
}

}  // namespace
}  // namespace kv
