// Learning codebooks from a model's rows, and holding them to the model and to the text.
#include "harness/model/codebooks.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "harness/math/random.h"
#include "harness/memory/ledger.h"
#include "harness/model/cached_model.h"
#include "harness/model/random_weights.h"
#include "kernels/format/vq.h"
#include "tests/harness/model/model_support.h"
#include "tests/harness/model/tiny_geometry.h"
#include "tests/message_of.h"
#include "tests/normal.h"
#include "variants/cache/spec.h"

namespace kv {
namespace {

using test::contains;
using test::refusal;

model::Model tiny_model(uint64_t seed) {
  const test::TempFile file(test::tiny().dump());
  return model::Model(model::random_weights(config::read_geometry(file.path()),
                                            model::WeightMatrix::Type::kF32, seed, 1 << 30));
}

std::vector<int> random_ids(size_t n, uint64_t seed) {
  std::vector<int> ids(n);
  for (size_t i = 0; i < n; ++i)
    ids[i] = static_cast<int>(math::random::below(math::random::key({seed}), i, 100));
  return ids;
}

Codebooks learned_from(const model::Model& model, const std::vector<int>& ids, uint64_t seed = 1) {
  return model::learn_codebooks(
      model, {.ids = ids, .first = 100, .tokens = 600, .window = 64, .codebooks = 2, .seed = seed});
}

// Mean square of what the nearest words leave.
double left_of(const std::vector<float>& values, const float* words) {
  double sum = 0.0;
  for (size_t at = 0; at < values.size(); at += 8) {
    double least = INFINITY;
    for (int word = 0; word < 255; ++word) {
      double distance = 0.0;
      for (size_t i = 0; i < 8; ++i)
        distance += std::pow(double{values[at + i]} - double{words[8 * static_cast<size_t>(word) + i]}, 2);
      least = std::min(least, distance);
    }
    sum += least;
  }
  return sum / static_cast<double>(values.size());
}

// Signs leave 0.3634 of N(0,1); no code of a bit a value leaves less than 0.25 (Shannon's distortion at rate 1). On the values
// that it was learned from a codebook is a little too good.
TEST(LearnWords, BeatTheSignsOfNormalValuesAndNotShannon) {
  const std::vector<float> values = test::gaussian(8 * 8000, 3);
  std::vector<float> words(2 * 2048);
  model::learn_words(values, 2, 7, 2048, words.data());
  const double left = left_of(values, words.data());
  EXPECT_GT(left, 0.25);
  EXPECT_LT(left, 0.33);
  const double unseen = left_of(test::gaussian(8 * 4000, 4), words.data());
  EXPECT_GT(unseen, left);
  EXPECT_LT(unseen, 0.345);
  for (int book = 0; book < 2; ++book) {
    for (int i = 0; i < 8; ++i)
      EXPECT_TRUE(std::isnan(words[static_cast<size_t>(book * 2048 + 255 * 8 + i)]));
  }
}

TEST(LearnWords, FindTheValuesOfAFewClusters) {
  std::vector<float> values;
  for (int i = 0; i < 4000; ++i)
    for (int x = 0; x < 8; ++x) values.push_back(static_cast<float>((i % 4) * (x + 1)));
  std::vector<float> words(2048);
  model::learn_words(values, 1, 7, 2048, words.data());
  EXPECT_LT(left_of(values, words.data()), 1e-9);
}

TEST(LearnCodebooks, AreTheSameForAnyThreadsAndOthersForAnotherSeed) {
  const model::Model model = tiny_model(1);
  const std::vector<int> ids = random_ids(800, 2);
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const Codebooks one = learned_from(model, ids);
  omp_set_num_threads(3);
  const Codebooks three = learned_from(model, ids), other = learned_from(model, ids, 2);
  omp_set_num_threads(before);
  ASSERT_EQ(one.words.size(), size_t{3 * 2 * 2 * 2 * 2048});
  EXPECT_EQ(std::memcmp(one.words.data(), three.words.data(), 4 * one.words.size()), 0);
  EXPECT_NE(std::memcmp(one.words.data(), other.words.data(), 4 * one.words.size()), 0);
  EXPECT_EQ(one.ids, std::vector<int32_t>(ids.begin() + 100, ids.begin() + 700));
}

// Learned from a model's own rows, codebooks store those of other tokens better than the ones that know no model.
TEST(LearnCodebooks, StoreTheModelsRowsAndRefuseAnotherModelAndTheirOwnText) {
  const model::Model model = tiny_model(1), other = tiny_model(2);
  const std::vector<int> ids = random_ids(800, 2), unseen(ids.begin() + 700, ids.begin() + 760);
  const test::TempFolder folder;
  const std::string path = (folder / "tiny.vq").string();
  Codebooks books = learned_from(model, ids);
  books.model = "tiny";
  write_codebooks(path, books);

  const auto logits = [&](const model::Model& of, const std::string& codec) {
    memory::Ledger ledger;
    const auto cache = build_cache(parse_spec("contiguous/" + codec + "/full(positions=cache)"),
                                   model::cache_shape(of.config(), 1, 64), ledger);
    return model::CachedModel(of, *cache, 1).step(unseen, std::ssize(unseen));
  };
  const std::vector<float> exact = logits(model, "f32");
  const auto error = [&](const std::string& codec) {
    const std::vector<float> got = logits(model, codec);
    double squares = 0.0;
    for (size_t i = 0; i < got.size(); ++i) squares += std::pow(double{got[i]} - double{exact[i]}, 2);
    return squares;
  };
  const std::string file = "file=" + path;
  EXPECT_LT(error("vq(bits=1," + file + ")"), 0.5 * error("vq(bits=1)"));
  EXPECT_LT(error("vq(" + file + ")"), 0.5 * error("vq(bits=1," + file + ")"));

  EXPECT_TRUE(contains(refusal([&] { logits(other, "vq(" + file + ")"); }), "learned from tiny"));

  const LayerSpecs specs(parse_spec("contiguous/vq(" + file + ")/full(positions=cache)"));
  EXPECT_EQ(message_of([&] { model::check_calibration(specs, unseen); }), "");
  EXPECT_EQ(message_of([&] { model::check_calibration(specs, {ids.data(), 163}); }), "");  // 63 in common
  EXPECT_TRUE(contains(refusal([&] {
                         model::check_calibration(specs, {ids.data(), 164});
                       }),
                       "its tokens from 100 on"));
}

TEST(LearnCodebooks, TextsThatAreTooShortAreRefused) {
  const model::Model model = tiny_model(1);
  const std::vector<int> ids = random_ids(600, 2);
  const auto message = [&](int64_t first, int64_t tokens, int64_t window) {
    const model::Calibration text{
        .ids = ids, .first = first, .tokens = tokens, .window = window, .codebooks = 1, .seed = 1};
    return refusal([&] { model::learn_codebooks(model, text); });
  };
  EXPECT_TRUE(contains(message(100, 512, 64), "has 600 tokens"));
  EXPECT_TRUE(contains(message(0, 500, 64), "need 512 tokens or more"));
  EXPECT_TRUE(contains(message(0, 600, 65), "reads 64 tokens at a time"));
}

}  // namespace
}  // namespace kv
