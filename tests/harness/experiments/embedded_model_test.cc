// What caches do to the model that comes with kvlab.
#include <cmath>

#include "harness/experiments/reading_run.h"
#include "harness/experiments/recall/passages.h"
#include "harness/experiments/sample_documents.h"
#include "harness/measure/prediction_columns.h"
#include "harness/model/sampling.h"
#include "harness/model/token_ids.h"
#include "tests/harness/math/numpy_random.h"
#include "tests/harness/model/model_support.h"

namespace kv {
namespace {

std::vector<LayerSpecs> parsed(std::initializer_list<const char*> texts) {
  std::vector<LayerSpecs> out;
  for (const char* text : texts) out.push_back(parse_spec(text));
  return out;
}

// The folder of the model of configs/quality.toml.
const std::string kFolder = KVLAB_SOURCE_DIR "/configs/models/kvlab-recall-1m/";

class EmbeddedModel : public testing::Test {
 protected:
  void SetUp() override {
#ifndef NDEBUG
    GTEST_SKIP() << "too slow in a debug build";
#endif
  }
  model::Model model_{kFolder};
};

// The README of the model's folder has the command.
TEST_F(EmbeddedModel, WritesItsSampleAgain) {
  const std::string text =
      experiments::sample_documents({.model = kFolder,
                                     .tokenizer = "",
                                     .prompt = "There was once a king who had three sons.",
                                     .documents = 10,
                                     .tokens = 100,
                                     .temperature = 0.8,
                                     .seed = 5});
  const std::string beginning = text.substr(0, text.find("\n<|endoftext|>")),
                    whole = test::read_all(kFolder + "sample.txt");
  EXPECT_GT(beginning.size(), 150u);
  EXPECT_EQ(beginning, whole.substr(0, beginning.size()));
}

std::vector<int> sample_ids() {
  return model::read_tokens(kFolder + "sample.txt", kFolder + "tokenizer.json", 512);
}

measure::PredictionSummary summary(const std::vector<measure::Prediction>& predictions,
                                   const measure::Passages& p) {
  return measure::summarise(predictions, p.length, p.first, p.length);
}

// The mean of how much further b is from the full cache than a, with its paired interval.
measure::Mean further(std::vector<measure::Prediction> a, const std::vector<measure::Prediction>& b,
                      const measure::Passages& p) {
  for (size_t i = 0; i < a.size(); ++i) a[i].kl = b[i].kl - a[i].kl;
  return summary(a, p).kl;
}

TEST_F(EmbeddedModel, FewerBitsDoMoreAndChannelsSpareK) {
  const measure::Passages p = experiments::text_windows(sample_ids(), 2, 384);
  const auto got = measure::read_specs(model_, p, {},
                                       parsed({"contiguous/f16", "contiguous/q8_0",
                                               "contiguous/kivi(k_bits=2,v_bits=16,residual=0,k_axis=token)",
                                               "contiguous/kivi(k_bits=2,v_bits=16,residual=0)"}));
  const measure::PredictionSummary f16 = summary(got[0], p), q8 = summary(got[1], p),
                                   token = summary(got[2], p), channel = summary(got[3], p);
  EXPECT_LT(f16.kl.value, 1e-6);
  EXPECT_GT(f16.kl.value, 1e-9);
  EXPECT_LT(std::abs(f16.loss_change.value), 1e-4);
  EXPECT_GE(f16.same_top.value, 0.995);
  EXPECT_LT(q8.kl.value, 2e-4);
  EXPECT_GT(q8.kl.value, 2e-6);
  EXPECT_LT(std::abs(q8.loss_change.value), 2e-3);
  EXPECT_GT(token.kl.value, 1.5 * channel.kl.value);
  EXPECT_LT(token.kl.value, 10 * channel.kl.value);
  EXPECT_GT(further(got[3], got[2], p).interval.low, 0)
      << "scales per token are worse for K, and not by chance";
}

// The data README's recall protocol: NumPy's random ids, `passage` of them again `distance` later.
measure::Passages numpy_recall(int64_t distance, int64_t passage = 64) {
  const experiments::Recall recall{.distance = distance, .passage = passage};
  std::vector<int> ids;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    const std::vector<int> drawn = test::NumpyRandom(seed).integers(3, 512, 1025);
    ids.insert(ids.end(), drawn.begin(), drawn.begin() + recall.length() + 1);
  }
  return experiments::with_repeat(ids, 8, recall);
}

TEST_F(EmbeddedModel, AWindowShorterThanTheDistanceForgets) {
  struct Row {
    int64_t distance;
    double full, window256, window64;
  };
  // ../shared/data/README.md
  for (const Row& want : {Row{160, 1.732, 1.733, 6.262}, Row{320, 0.167, 6.259, 6.243}}) {
    const measure::Passages p = numpy_recall(want.distance);
    const auto got = measure::read_specs(
        model_, p, {}, parsed({"contiguous", "contiguous/ring(window=256)", "contiguous/ring(window=64)"}));
    EXPECT_NEAR(summary(got[0], p).loss, want.full, 0.0006);
    EXPECT_NEAR(summary(got[1], p).loss, want.window256, 0.0006);
    EXPECT_NEAR(summary(got[2], p).loss, want.window64, 0.0006);
  }
  const measure::Passages far = numpy_recall(500, 400);
  EXPECT_NEAR(summary(measure::read_specs(model_, far, {}, parsed({"contiguous"}))[0], far).loss, 0.047,
              0.0006);
}

TEST_F(EmbeddedModel, GreedyTextsPartWhereTheCacheSaysSo) {
  const std::vector<int> ids = sample_ids();
  const auto text = [&](const char* spec) {
    memory::Ledger ledger;
    const auto cache = build_cache(parse_spec(spec), cache_shape(model_.config(), 1, 128), ledger);
    model::CachedModel writer(model_, *cache, 1);
    return model::continue_prompts(writer, std::span(ids).first(32), 128, {.temperature = 0},
                                   [] { return false; });
  };
  const std::vector<int> full = text("contiguous"), paged = text("paged"),
                         coarse = text("contiguous/token(bits=2)");
  EXPECT_EQ(full.size(), 128u);
  EXPECT_EQ(paged, full);
  EXPECT_TRUE(std::equal(full.begin(), full.begin() + 32, coarse.begin())) << "the prompt is everyone's";
  EXPECT_NE(coarse, full);
}

}  // namespace
}  // namespace kv
