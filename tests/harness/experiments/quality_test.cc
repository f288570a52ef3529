// The effect of caches on a model's predictions: the arithmetic, decode in lockstep and in chunks, and the
// model that comes with kvlab.
#include <cmath>
#include <numeric>

#include "harness/experiments/reading_run.h"
#include "harness/experiments/recall/passages.h"
#include "harness/experiments/sample_documents.h"
#include "harness/measure/prediction_columns.h"
#include "harness/model/sampling.h"
#include "harness/model/step_parts.h"
#include "tests/harness/math/numpy_random.h"
#include "tests/harness/model/tiny_hugging_face.h"

namespace kv {
namespace {

using test::contains;
using test::refusal;
using test::TempFile;
using test::TinyModel;

std::vector<LayerSpecs> specs(std::initializer_list<const char*> texts) {
  std::vector<LayerSpecs> out;
  for (const char* text : texts) out.push_back(parse_spec(text));
  return out;
}

std::vector<int> some_ids(size_t n, int vocab) {
  std::mt19937 bits(23);
  std::vector<int> ids;
  for (size_t i = 0; i < n; ++i) ids.push_back(static_cast<int>(bits() % static_cast<unsigned>(vocab)));
  return ids;
}

using Logits = std::vector<float>;

TEST(Predictions, AreSoftmaxesInLogarithms) {
  const Logits logits{100.0f, 100.0f + std::log(3.0f), 20.0f};
  const measure::Distribution d = measure::distribution_of(logits);
  EXPECT_NEAR(d.log_p[0], std::log(0.25), 1e-5);
  EXPECT_NEAR(d.log_p[1], std::log(0.75), 1e-5);
  EXPECT_NEAR(d.log_p[2], -80 + std::log(0.25), 1e-5);
  EXPECT_EQ(d.top, 1);
  for (size_t i = 0; i < 3; ++i) EXPECT_DOUBLE_EQ(d.p[i], std::exp(d.log_p[i]));
  EXPECT_DOUBLE_EQ(measure::loss_of(logits, 2), -d.log_p[2]);
}

TEST(Predictions, CompareAsByHand) {
  const Logits even{0, 0}, quarter{0, std::log(3.0f)};
  const measure::Distribution half = measure::distribution_of(even);
  const measure::Prediction p = measure::compare_predictions(quarter, half, 0);
  EXPECT_NEAR(p.loss, std::log(4.0), 1e-6);
  EXPECT_NEAR(p.loss_change, std::log(2.0), 1e-6);
  EXPECT_NEAR(p.kl, 0.5 * std::log(0.5 / 0.25) + 0.5 * std::log(0.5 / 0.75), 1e-6);
  EXPECT_NEAR(p.p_change, -0.25, 1e-6);
  EXPECT_FALSE(p.same_top);
  const measure::Prediction same =
      measure::compare_predictions(quarter, measure::distribution_of(quarter), 1);
  EXPECT_EQ(same.kl, 0);
  EXPECT_EQ(same.loss_change, 0);
  EXPECT_TRUE(same.same_top);
}

TEST(Predictions, SummariseOnlyWhatCounts) {
  std::vector<measure::Prediction> predictions(2 * 200);  // two sequences
  for (size_t i = 0; i < predictions.size(); ++i) {
    const double x = static_cast<double>(i % 200);
    predictions[i] = {
        .loss = x, .loss_change = 1, .kl = x, .p_change = i % 2 ? 0.5 : -0.5, .same_top = i % 4 != 0};
  }
  const measure::PredictionSummary s = measure::summarise(predictions, 200, 100, 200);
  EXPECT_EQ(s.count, 200);
  EXPECT_DOUBLE_EQ(s.loss, 149.5);
  EXPECT_DOUBLE_EQ(s.loss_change.value, 1);
  EXPECT_TRUE(std::isinf(s.loss_change.interval.low)) << "four stretches say nothing about their spread";
  EXPECT_DOUBLE_EQ(s.kl_median, 149.5);
  EXPECT_DOUBLE_EQ(s.kl_max, 199);
  EXPECT_DOUBLE_EQ(s.same_top.value, 0.75);
  EXPECT_DOUBLE_EQ(s.p_change_rms, 0.5);
}

TEST(Predictions, PercentilesOfManyAreNotTheirMaximum) {
  std::vector<measure::Prediction> predictions(10001);
  for (size_t i = 0; i < predictions.size(); ++i) predictions[i].kl = static_cast<double>(i * 7 % 10001);
  const measure::PredictionSummary s = measure::summarise(predictions, 10001, 0, 10001);
  EXPECT_DOUBLE_EQ(s.kl_median, 5000);
  EXPECT_NEAR(s.kl_p99, 9900, 1e-6);
  EXPECT_NEAR(s.kl_p999, 9990, 1e-6);
  EXPECT_DOUBLE_EQ(s.kl_max, 10000);
}

TEST(Predictions, TextWindowsAreDisjointAndShareTheirBorders) {
  std::vector<int> text(9);
  std::iota(text.begin(), text.end(), 0);
  const measure::Passages p = experiments::text_windows(text, 2, 4);
  EXPECT_EQ(p.ids, (std::vector<int>{0, 1, 2, 3, 4, 4, 5, 6, 7, 8}));
  EXPECT_TRUE(contains(refusal([&] { experiments::text_windows(text, 3, 4); }),
                       "has 9 tokens, but 3 windows of 4 need 13"));
}

TEST(Predictions, ARepeatIsWhereItShouldBe) {
  const experiments::Recall recall{.distance = 30, .passage = 12};
  std::vector<int> ids(static_cast<size_t>(recall.length() + 1));
  std::iota(ids.begin(), ids.end(), 0);
  const measure::Passages p = experiments::with_repeat(ids, 1, recall);
  EXPECT_EQ(p.length, 40 + 30 + 12 - 1);
  EXPECT_EQ(p.id(0, 69), 69);
  EXPECT_EQ(p.id(0, 70), 40);
  EXPECT_EQ(p.id(0, 81), 51);
  EXPECT_EQ(p.first, 78) << "token 79, the tenth of the second copy, is the first whose prediction counts";
}

class TinyReading : public testing::Test {
 protected:
  measure::Passages passages(int sequences, int64_t length) const {
    return experiments::text_windows(some_ids(static_cast<size_t>(sequences * length + 1), 40), sequences,
                                     length);
  }
  std::vector<std::vector<measure::Prediction>> read(const measure::Passages& p,
                                                     const measure::StepSchedule& schedule,
                                                     std::initializer_list<const char*> texts) const {
    return measure::read_specs(model_, p, schedule, specs(texts));
  }

  const TinyModel file_{{.dim = 32, .vocab = 40, .seq_len = 120}};
  const model::Model model_{file_.path()};
};

TEST_F(TinyReading, TheFullF32CacheIsTheModelItself) {
  const measure::Passages p = passages(1, 100);
  const std::vector<measure::Prediction> got = read(p, {}, {"contiguous"})[0];
  const model::Model::Attention attention = model::full_attention(model_.config());
  double worst = 0;
  for (int64_t t = 0; t < p.length; ++t) {
    const int token = p.id(0, t);
    const measure::Distribution want = measure::distribution_of(model_.forward({&token, 1}, t, attention));
    const measure::Prediction& g = got[static_cast<size_t>(t)];
    worst = std::max(worst, std::abs(g.loss + want.log_p[static_cast<size_t>(p.id(0, t + 1))]));
    EXPECT_EQ(g.kl, 0);
  }
  EXPECT_LT(worst, 1e-5);
  EXPECT_GT(worst, 0) << "the two sum in different orders";
}

TEST_F(TinyReading, PlacementsChangeNoBit) {
  for (const auto& predictions :
       read(passages(2, 100), {},
            {"concat", "doubling", "segmented(rows=16)", "paged", "paged(order=shuffled)"})) {
    for (const measure::Prediction& p : predictions) {
      ASSERT_EQ(p.kl, 0);
      ASSERT_EQ(p.loss_change, 0);
    }
  }
}

// Each sequence must predict in company what it predicts alone.
TEST_F(TinyReading, SequencesInLockstepDoNotSeeEachOther) {
  const measure::Passages three = passages(3, 100);
  for (const char* spec :
       {"contiguous", "contiguous/f16/ring(window=20)", "contiguous/h2o(heavy=10,recent=10)"}) {
    const std::vector<measure::Prediction> together = read(three, {}, {spec})[0];
    for (int s = 0; s < 3; ++s) {
      measure::Passages one{.sequences = 1, .length = 100, .ids = {}};
      for (int64_t t = 0; t <= 100; ++t) one.ids.push_back(three.id(s, t));
      const std::vector<measure::Prediction> alone = read(one, {}, {spec})[0];
      for (size_t t = 0; t < 100; ++t)
        ASSERT_NEAR(together[static_cast<size_t>(s) * 100 + t].loss, alone[t].loss, 1e-4)
            << spec << " " << s << " " << t;
    }
  }
}

double largest_change(const std::vector<measure::Prediction>& a, const std::vector<measure::Prediction>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i].loss - b[i].loss));
  return worst;
}

TEST_F(TinyReading, ChunksAgreeWithDecodeWhereTheyMust) {
  const measure::Passages p = passages(2, 100);
  for (const char* spec : {"contiguous", "contiguous/f16", "paged/fp8", "contiguous/token(bits=3)",
                           "contiguous/f16/ring(window=20,sinks=2)", "contiguous/h2o(heavy=10,recent=10)",
                           "contiguous/tova(budget=20)", "contiguous/random(budget=20)"}) {
    EXPECT_TRUE(measure::agrees_in_chunks(parse_spec(spec)));
    const std::vector<measure::Prediction> decode = read(p, {}, {spec})[0];
    EXPECT_LT(largest_change(decode, read(p, {.prompt = 0, .step = 16}, {spec})[0]), 1e-3) << spec;
    EXPECT_LT(largest_change(decode, read(p, {.prompt = 37, .step = 1}, {spec})[0]), 1e-3) << spec;
  }
  // Whose first queries of a chunk see rows encoded that decode still has raw, and the cut of a prompt.
  for (const char* spec :
       {"contiguous/kivi(bits=2,residual=0,group=8)", "segmented(rows=16)/snapkv(budget=24,window=8)"}) {
    EXPECT_FALSE(measure::agrees_in_chunks(parse_spec(spec)));
    EXPECT_GT(largest_change(read(p, {}, {spec})[0], read(p, {.prompt = 0, .step = 48}, {spec})[0]), 1e-3)
        << spec;
  }
}

// Sixteen rows are enough for a product whose rows do not depend on their number (products_test), so that company changes no bit,
// though caches that answer alike share them.
TEST_F(TinyReading, CachesPredictSideBySideWhatTheyPredictAlone) {
  measure::Passages p = passages(16, 50);
  for (const int64_t first : {0, 20}) {
    p.first = first;
    for (const measure::StepSchedule schedule : {measure::StepSchedule{}, {.prompt = 30, .step = 7}}) {
      // The last two get their keys unrotated.
      const std::initializer_list<const char*> texts = {"contiguous",
                                                        "contiguous/token(bits=2)",
                                                        "paged/fp8",
                                                        "contiguous/h2o(heavy=10,recent=10)",
                                                        "contiguous/f16/ring(window=20,positions=cache)",
                                                        "contiguous/ring(window=24,positions=cache)"};
      const auto together = read(p, schedule, texts);
      for (size_t i = 0; i < texts.size(); ++i) {
        const std::vector<measure::Prediction> alone = read(p, schedule, {texts.begin()[i]})[0];
        ASSERT_EQ(together[i].size(), alone.size());
        for (size_t at = 0; at < alone.size(); ++at) {
          const measure::Prediction &got = together[i][at], &want = alone[at];
          ASSERT_EQ(got.loss, want.loss) << texts.begin()[i] << " " << at;
          ASSERT_EQ(got.kl, want.kl) << texts.begin()[i] << " " << at;
          const bool scored = static_cast<int64_t>(at) % p.length >= first;
          ASSERT_EQ(got.loss > 0, scored) << "only what counts is predicted";
        }
      }
    }
  }
}

// A window drops rows after 20 tokens, the codec changes every answer, and placements none.
TEST_F(TinyReading, CachesThatAnswerAlikeAreMultipliedOnce) {
  measure::Passages p = passages(2, 50);
  p.first = p.length - 1;
  const auto work = [&](std::initializer_list<const char*> texts) {
    const model::StepParts parts;
    read(p, {.prompt = 20, .step = 1}, texts);
    return parts.multiply_adds();
  };
  const int64_t one = work({}), ring = work({"contiguous/ring(window=20)"}),
                coded = work({"paged/token(bits=8)"});
  EXPECT_EQ(work({"paged", "segmented(rows=16)", "concat"}), one);
  EXPECT_EQ(work({"paged", "segmented/ring(window=20)", "concat/ring(window=20)"}), ring);
  // The first layer's q, k and v come before any answer.
  const int64_t a_token = one / (p.length * 2), shared = (2 * one - coded) / (p.length * 2);
  EXPECT_EQ(shared, 32 * (32 + 2 * 16));
  EXPECT_GT(ring, one);
  EXPECT_LE(ring, one + 30 * 2 * a_token);
}

TEST_F(TinyReading, ACacheThatRunsOutOfMemoryStopsAlone) {
  const measure::Passages p = passages(8, 50);
  const auto run = [&](int64_t bytes) {
    memory::Ledger plenty, little(bytes);
    const ModelShape shape = cache_shape(model_.config(), 8, 50);
    const auto full = build_cache(parse_spec("contiguous"), shape, plenty),
               fails = build_cache(parse_spec("concat"), shape, little),
               other = build_cache(parse_spec("contiguous/f16"), shape, plenty);
    measure::Reading reference(model_, *full, p), first(model_, *fails, p), second(model_, *other, p);
    measure::Reading* const readings[] = {&first, &second};
    EXPECT_TRUE(measure::read_together(p, {}, reference, readings, [](int64_t) { return true; }));
    EXPECT_EQ(second.decoder.failure(), nullptr);
    EXPECT_EQ(second.decoder.tokens(), 50);
    EXPECT_GT(second.decoder.cache_seconds(), 0);
    EXPECT_EQ(second.decoder.shared_seconds(), reference.decoder.shared_seconds()) << bytes;
    if (bytes < INT64_MAX) {
      EXPECT_THROW(std::rethrow_exception(first.decoder.failure()), std::bad_alloc);
      EXPECT_GT(first.decoder.tokens(), 5);
      EXPECT_LT(first.decoder.tokens(), 50);
    }
    return second.predictions;
  };
  const auto beside_failure = run(60'000), undisturbed = run(INT64_MAX);
  for (size_t at = 0; at < undisturbed.size(); ++at) ASSERT_EQ(beside_failure[at].loss, undisturbed[at].loss);
}

TEST_F(TinyReading, AReferenceWithoutMemoryEndsTheReading) {
  const measure::Passages p = passages(2, 50);
  memory::Ledger plenty, little(5'000);
  const ModelShape shape = cache_shape(model_.config(), 2, 50);
  const auto full = build_cache(parse_spec("concat"), shape, little),
             other = build_cache(parse_spec("concat"), shape, plenty);
  measure::Reading reference(model_, *full, p), reading(model_, *other, p);
  measure::Reading* const readings[] = {&reading};
  EXPECT_THROW(measure::read_together(p, {}, reference, readings, [](double) { return true; }),
               std::bad_alloc);
}

TEST_F(TinyReading, TellsEveryLayerAndCanBeStoppedInAStep) {
  const measure::Passages p = passages(2, 100);
  memory::Ledger ledger;
  const auto cache = build_cache(parse_spec("contiguous"), cache_shape(model_.config(), 2, 100), ledger);
  measure::Reading reference(model_, *cache, p);
  std::vector<double> told;
  const auto tell = [&](double tokens) {
    told.push_back(tokens);
    return told.size() < 5;
  };
  EXPECT_FALSE(measure::read_together(p, {.prompt = 30, .step = 16}, reference, {}, tell));
  EXPECT_EQ(told, (std::vector<double>{15, 15, 8, 8, 8}));
  EXPECT_EQ(reference.decoder.tokens(), 46);
}

TEST_F(TinyReading, TellsOfAllTokensHoweverManyReadingsLieSideBySide) {
  const measure::Passages p = passages(2, 100);
  for (const int64_t step : {int64_t{1}, int64_t{100}}) {
    double told = 0;
    const auto tell = [&](double tokens) {
      told += tokens;
      return true;
    };
    measure::read_specs(model_, p, {.prompt = 0, .step = step},
                        specs({"contiguous", "paged", "contiguous/f16"}), nullptr, tell);
    EXPECT_NEAR(told, 100, 1e-9) << step;
  }
}

TEST_F(TinyReading, AWindowIsExactUntilItForgets) {
  const std::vector<measure::Prediction> got = read(passages(1, 100), {}, {"contiguous/ring(window=24)"})[0];
  for (size_t t = 0; t < 24; ++t) EXPECT_EQ(got[t].kl, 0) << t;
  for (size_t t = 24; t < 100; ++t) EXPECT_GT(got[t].kl, 0) << t;
}

// Until a token is dropped, its place in the cache is its position.
TEST_F(TinyReading, PlacesInTheCacheArePositionsUntilItForgets) {
  const std::vector<measure::Prediction> got =
      read(passages(1, 100), {}, {"contiguous/ring(window=24,positions=cache)"})[0];
  for (size_t t = 0; t < 24; ++t) EXPECT_LT(std::abs(got[t].loss_change), 1e-4) << t;
  EXPECT_GT(measure::summarise(got, 100, 24, 100).kl.value, 1e-6);
}

TEST(Sampling, GreedyTakesTheLikeliestAndTheFirstOfEquals) {
  EXPECT_EQ(model::next_token(std::vector<float>{0, 3, 3, 1}, {.temperature = 0}, 0, 0), 1);
}

TEST(Sampling, DrawsFollowTheTemperedDistribution) {
  const std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f)};
  for (const double temperature : {1.0, 0.5}) {
    std::vector<double> weights = {1, std::pow(2, 1 / temperature), std::pow(5, 1 / temperature)};
    const double sum = weights[0] + weights[1] + weights[2];
    std::vector<int> counts(3);
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i)
      ++counts[static_cast<size_t>(model::next_token(logits, {temperature, 9}, i % 7, i))];
    for (size_t i = 0; i < 3; ++i) {
      const double p = weights[i] / sum;
      EXPECT_NEAR(counts[i], p * kDraws, 4 * std::sqrt(p * (1 - p) * kDraws)) << temperature;
    }
  }
}

TEST(Sampling, DependsOnSeedSequenceAndPosition) {
  const std::vector<float> even(512);
  const auto draw = [&](uint64_t seed, int sequence, int64_t position) {
    return model::next_token(even, {.temperature = 1, .seed = seed}, sequence, position);
  };
  EXPECT_EQ(draw(1, 2, 3), draw(1, 2, 3));
  EXPECT_NE(draw(1, 2, 3), draw(2, 2, 3));
  EXPECT_NE(draw(1, 2, 3), draw(1, 3, 3));
  EXPECT_NE(draw(1, 2, 3), draw(1, 2, 4));
}

}  // namespace
}  // namespace kv
