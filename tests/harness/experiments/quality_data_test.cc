// The numbers of ../shared/data/README.md, through the caches: perplexities, windows, and quantised K and V.
#include <gtest/gtest.h>

#include <cmath>

#include "harness/experiments/reading_run.h"
#include "harness/experiments/recall/passages.h"
#include "harness/io/model_files.h"
#include "harness/model/sampling.h"
#include "harness/model/token_ids.h"
#include "tests/harness/model/model_support.h"

namespace kv {
namespace {

using test::data_path;

class QualityData : public testing::Test {
 protected:
  void SetUp() override {
#ifndef NDEBUG
    GTEST_SKIP() << "too slow in a debug build";
#endif
    if (test::data_is_absent()) GTEST_SKIP() << test::why_skipped();
  }
};

// A model, and the stories that it was trained on, packed.
struct Real {
  model::Model model;
  std::vector<int> stories;
  Real(const std::string& name, size_t count) : model(test::converted(name)) {
    const test::TempFile some(first_stories(count));
    stories =
        model::read_tokens(some.path(), test::converted(name) + "/tokenizer.json", model.config().vocab_size);
  }

  static std::string first_stories(size_t count) {
    const std::string all = test::read_all(data_path("text/tinystories_1000.txt")), mark = "<|endoftext|>";
    size_t end = 0;
    for (size_t i = 0; i < count; ++i) end = all.find(mark, end) + mark.size();
    return all.substr(0, end);
  }
};
Real stories260k(size_t count) { return {"stories260K", count}; }
Real babyllama105(size_t count) { return {"babyllama105", count}; }

double mean_loss(const std::vector<measure::Prediction>& predictions) {
  double sum = 0;
  for (const measure::Prediction& p : predictions) sum += p.loss;
  return sum / static_cast<double>(predictions.size());
}

std::vector<double> perplexities(const model::Model& model, const measure::Passages& p,
                                 const measure::StepSchedule& schedule,
                                 std::initializer_list<const char*> texts) {
  std::vector<LayerSpecs> specs;
  for (const char* text : texts) specs.push_back(parse_spec(text));
  std::vector<double> out;
  for (const auto& predictions : measure::read_specs(model, p, schedule, specs))
    out.push_back(std::exp(mean_loss(predictions)));
  return out;
}

constexpr double kFourDigits = 0.0006;  // for a perplexity below 10

TEST_F(QualityData, PerplexityOfPackedStories) {
  const Real stories = stories260k(200), baby = babyllama105(60);
  const measure::StepSchedule chunked{.prompt = 0, .step = 64};
  EXPECT_NEAR(perplexities(stories.model, experiments::text_windows(stories.stories, 60, 512), chunked,
                           {"contiguous"})[0],
              5.260, kFourDigits);
  EXPECT_NEAR(
      perplexities(baby.model, experiments::text_windows(baby.stories, 80, 256), chunked, {"contiguous"})[0],
      2.112, kFourDigits);
}

TEST_F(QualityData, WindowsOnBooks) {
  const model::Model model(KVLAB_SOURCE_DIR "/configs/models/kvlab-recall-1m");
  const auto grimm = model::read_token_file(data_path("text/grimms_fairy_tales.tok512.u16"), 512),
             alice = model::read_token_file(data_path("text/alice_in_wonderland.tok512.u16"), 512);
  const auto read = [&](std::span<const int> ids, const measure::StepSchedule& schedule) {
    return perplexities(model, experiments::text_windows(ids, 8, 1024), schedule,
                        {"contiguous", "contiguous/ring(window=256)", "contiguous/ring(window=64)"});
  };
  const std::vector<double> from_grimm = read(std::span(grimm).subspan(5000), {}),
                            from_alice = read(alice, {.prompt = 0, .step = 32});
  const std::vector<double> want_grimm = {10.401, 10.416, 10.589}, want_alice = {9.150, 9.148, 9.309};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(from_grimm[i], want_grimm[i], kFourDigits);
    EXPECT_NEAR(from_alice[i], want_alice[i], kFourDigits);
  }
}

TEST_F(QualityData, Stories260kTellsTheReferenceStory) {
  const std::string folder = test::converted("stories260K");
  const model::Model model(folder);
  for (const char* spec : {"contiguous", "paged(order=shuffled)", "contiguous/f16"}) {
    memory::Ledger ledger;
    const auto cache = build_cache(parse_spec(spec), cache_shape(model.config(), 1, 201), ledger);
    model::CachedModel writer(model, *cache, 1);
    const std::vector<int> bos = {1};
    const std::vector<int> ids =
        model::continue_prompts(writer, bos, 201, {.temperature = 0}, [] { return false; });
    // llama2.c, test_all.py: the text of 200 steps at temperature 0.
    EXPECT_EQ(
        io::texts_of_tokens(folder + "/tokenizer.json", ids, 201, 0)[0].rest,
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One "
        "day, "
        "she saw a big, red ball. She wanted to play with it, but it was too high.\nLily's mom said, \"Lily, "
        "let's go to the park.\" Lily was sad and didn't know what to do. She said, \"I want to play with "
        "your "
        "ball, but I can't find it.\"\nLily was sad and didn't know what to do. She said, \"I'm sorry, Lily. "
        "I "
        "didn't know what to do.\"\nLily didn't want to help her mom, so she")
        << spec;
  }
}

// A cache encodes tokens one by one as the README's table does; groups of channels it encodes when they are full, so that up to
// 31 rows are still raw, and it does better.
TEST_F(QualityData, CachesQuantiseAsTheTableDoes) {
  const Real stories = stories260k(30), baby = babyllama105(30);
  const auto expect = [](const Real& real, int windows, int64_t length, const std::vector<double>& want) {
    const std::vector<double> got =
        perplexities(real.model, experiments::text_windows(real.stories, windows, length), {},
                     {"contiguous/f16", "contiguous/token(bits=8)", "contiguous/token(bits=4)",
                      "contiguous/token(bits=3)", "contiguous/token(bits=2)"});
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], kFourDigits + (i > 0 ? 0.01 * want[i] : 0.0)) << i;
  };
  expect(stories, 12, 512, {3.874, 3.875, 5.567, 14.40, 58.60});
  expect(baby, 24, 256, {2.110, 2.110, 2.184, 2.608, 6.104});
  const std::vector<double> channels =
      perplexities(stories.model, experiments::text_windows(stories.stories, 12, 512), {},
                   {"contiguous/kivi(bits=3,residual=0)", "contiguous/kivi(bits=2,residual=0)"});
  EXPECT_LT(channels[0], 4.765);
  EXPECT_GT(channels[0], 3.88);
  EXPECT_LT(channels[1], 12.45);
  EXPECT_GT(channels[1], 4.2);
}

}  // namespace
}  // namespace kv
