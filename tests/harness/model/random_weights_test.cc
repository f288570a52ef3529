// Random weights: the sizes that a config.json states, the same for the same seed, and refusals.
#include "harness/model/random_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/model/step_parts.h"
#include "tests/harness/model/family_cases.h"
#include "tests/harness/model/model_support.h"
#include "tests/harness/model/tiny_geometry.h"

namespace kv {
namespace {

using model::WeightMatrix;
using nlohmann::json;
using test::tiny;
using test::tiny_hybrid;

model::ModelWeights make(const json& config, WeightMatrix::Type type = WeightMatrix::Type::kBf16,
                         uint64_t seed = 1, int64_t memory_bytes = 1 << 30) {
  const test::TempFile file(config.dump());
  return model::random_weights(config::read_geometry(file.path()), type, seed, memory_bytes);
}

int64_t bytes_of_products(const model::ModelWeights& w) {
  int64_t bytes = 0;
  for (const WeightMatrix* m : w.products()) bytes += m->bytes();
  return bytes;
}

model::Model::Attention no_attention() {
  return [](int, int64_t n, const float*, const float*, const float*, float* out) {
    std::fill_n(out, 6 * 8 * n, 0.0f);
  };
}

model::Model::Recurrence no_recurrence() {
  return [](int, int64_t, const float* projected, float* out) {  // the first token's, for both
    for (int i = 0; i < 2 * 4 * 8; ++i) out[i] = projected[i % 32];
  };
}

TEST(RandomWeights, AreAsManyAsTheConfigStates) {
  const int64_t attention = 48 * 8 * (6 + 2 + 2 + 6), mlp = 3 * 48 * 80, classifier = 100 * 48;
  EXPECT_EQ(bytes_of_products(make(tiny())), 2 * (3 * (attention + mlp) + classifier));
  EXPECT_EQ(bytes_of_products(make(tiny(), WeightMatrix::Type::kF32)),
            4 * (3 * (attention + mlp) + classifier));
  json ungated = tiny();
  ungated["model_type"] = "gpt2";
  ungated["num_key_value_heads"] = 6;
  EXPECT_EQ(bytes_of_products(make(ungated)), 2 * (3 * (attention + 48 * 8 * 8 + mlp * 2 / 3) + classifier));
  const int64_t recurrent = 48 * (2 * 16 + 2 * 32 + 2 * 4) + 48 * 32;
  const model::ModelWeights hybrid = make(tiny_hybrid());
  EXPECT_EQ(bytes_of_products(hybrid), 2 * (2 * attention + 6 * recurrent + 8 * mlp + classifier));
  EXPECT_EQ(hybrid.config.layers, 8);
  EXPECT_EQ(hybrid.layers.size(), 8u);
}

TEST(RandomWeights, AreTiedWhereTheClassifierIsTheEmbedding) {
  const model::ModelWeights tied = make(tiny());
  EXPECT_EQ(tied.classifier.data(), tied.embedding.data());
  json config = tiny();
  config["tie_word_embeddings"] = false;
  const model::ModelWeights own = make(config);
  EXPECT_NE(own.classifier.data(), own.embedding.data());
}

TEST(RandomWeights, DependOnTheSeedAloneAndHaveTheScaleOfTheirInputs) {
  for (const WeightMatrix::Type type : {WeightMatrix::Type::kF32, WeightMatrix::Type::kBf16}) {
    const auto values = [&](uint64_t seed) {
      const model::ModelWeights w = make(tiny(), type, seed);
      std::vector<float> all(80 * 48);
      w.layers[1].up.read(0, 80, all.data());
      return all;
    };
    const std::vector<float> first = values(1);
    EXPECT_EQ(first, values(1));
    EXPECT_NE(first, values(2));
    const float scale = 0.0625f;  // the power of two below 0.65 / sqrt(48)
    double sum = 0, squares = 0;
    for (const float x : first) {
      EXPECT_GE(std::abs(x), scale);
      EXPECT_LT(std::abs(x), 2 * scale);
      sum += static_cast<double>(x);
      squares += static_cast<double>(x * x);
    }
    const double count = static_cast<double>(first.size());
    EXPECT_LT(std::abs(sum / count), 4 * 1.5 * static_cast<double>(scale) / std::sqrt(count))
        << "signs are even";
    EXPECT_NEAR(squares / count, 7.0 / 3.0 * static_cast<double>(scale * scale), 2e-4);
  }
}

TEST(RandomWeights, RunAndReadEachMatrixOnceAToken) {
  constexpr model::Rotary kRotary = model::Rotary::kTrained;
  for (const json& config : {tiny(), tiny_hybrid()}) {
    model::ModelWeights weights = make(config);
    const int64_t bytes = bytes_of_products(weights);
    const model::Model model(std::move(weights));
    const std::vector<int> ids{3, 99};
    const model::StepParts parts;
    const std::vector<float> logits =
        model.forward(ids, std::vector<int64_t>{0, 1}, no_attention(), {&kRotary, 1}, {}, no_recurrence());
    EXPECT_EQ(parts.weight_bytes(), bytes);
    EXPECT_EQ(parts.multiply_adds(), 2 * bytes / 2);
    ASSERT_EQ(logits.size(), 200u);
    for (const float x : logits) EXPECT_TRUE(std::isfinite(x) && x != 0.0f);
    // Only the last token's.
    const std::vector<int64_t> positions{0, 1};
    const std::vector<float> last = model.forward(ids, positions, no_attention(), {&kRotary, 1},
                                                  std::vector<int64_t>{1}, no_recurrence());
    ASSERT_EQ(last.size(), 100u);
    for (size_t i = 0; i < 100; ++i) EXPECT_NEAR(last[i], logits[100 + i], 1e-5f);
    const std::vector<int64_t> none;
    EXPECT_TRUE(model.forward(ids, positions, no_attention(), {&kRotary, 1}, none, no_recurrence()).empty());
  }
}

// [rows, cols] of every matrix, and the size of every vector.
std::vector<std::pair<int64_t, int64_t>> sizes_of(const model::ModelWeights& w) {
  std::vector<std::pair<int64_t, int64_t>> sizes;
  const auto matrix = [&](const WeightMatrix& m) { sizes.emplace_back(m.rows(), m.cols()); };
  const auto vector = [&](const std::vector<float>& v) { sizes.emplace_back(std::ssize(v), 0); };
  for (const WeightMatrix* m : {&w.embedding, &w.classifier, &w.positions}) matrix(*m);
  vector(w.embedding_norm), vector(w.final_norm), vector(w.final_norm_bias), vector(w.config.sink_logits);
  for (const model::LayerWeights& l : w.layers) {
    for (const WeightMatrix* m :
         {&l.wq, &l.wk, &l.wv, &l.wo, &l.gate, &l.up, &l.down, &l.router, &l.recurrent_out})
      matrix(*m);
    for (const WeightMatrix& m : l.recurrent_in) matrix(m);
    for (const auto* v :
         {&l.attention_norm, &l.ffn_norm, &l.attention_norm_bias, &l.ffn_norm_bias, &l.attention_out_norm,
          &l.ffn_out_norm, &l.q_norm, &l.k_norm, &l.bq, &l.bk, &l.bv, &l.bo, &l.b_up, &l.b_down, &l.b_router,
          &l.convolution, &l.decay_rate, &l.decay_bias, &l.state_norm})
      vector(*v);
    for (const model::ExpertWeights& e : l.experts) {
      for (const WeightMatrix* m : {&e.gate, &e.up, &e.down}) matrix(*m);
      for (const auto* v : {&e.b_gate, &e.b_up, &e.b_down}) vector(*v);
    }
  }
  return sizes;
}

// Against models of every family that were read from files.
TEST(RandomWeights, AreAllThatAFamilyHas) {
  const json cases = test::family_cases();
  int families = 0;
  for (const auto& [name, found] : cases.items()) {
    if (name == "versions") continue;
    const test::TempFolder folder;
    test::family_model(name).write(folder.path());
    const model::ModelWeights want = model::load_hugging_face(folder.path().string(), 1 << 30);
    model::ModelWeights got = make(found.at("config"));
    EXPECT_EQ(sizes_of(got), sizes_of(want)) << name;
    EXPECT_EQ(got.classifier.data() == got.embedding.data(), want.classifier.data() == want.embedding.data())
        << name;
    EXPECT_EQ(got.config.score_cap, want.config.score_cap) << name;
    for (int layer = 0; layer < want.config.layers; ++layer)
      EXPECT_EQ(got.config.window(layer), want.config.window(layer)) << name;
    const model::Model model(std::move(got));
    const std::vector<int> ids = test::family_tokens();
    for (const float x : test::run_in_chunks(model, ids, ids.size()))
      ASSERT_TRUE(std::isfinite(x) && x != 0.0f) << name;
    ++families;
  }
  EXPECT_GE(families, 8);
}

// A token is multiplied with as many experts as it takes, not with all.
TEST(RandomWeights, OfExpertsAreReadWhereATokenGoes) {
  const json config = test::family_cases().at("gpt_oss").at("config");
  const auto bytes = [&](int experts_per_token) {
    json changed = config;
    changed["num_experts_per_tok"] = experts_per_token;
    const model::Model model(make(changed));
    const model::StepParts parts;
    model.forward(std::vector<int>{3}, 0, model::full_attention(model.config()));
    return parts.weight_bytes();
  };
  const int64_t of_an_expert = 2 * 3 * config.at("hidden_size").get<int64_t>() *
                               config.at("intermediate_size").get<int64_t>() *
                               config.at("num_hidden_layers").get<int64_t>();
  EXPECT_EQ(bytes(2) - bytes(1), of_an_expert);
}

TEST(RandomWeights, AreRefusedInOneLine) {
  const auto refused = [](const json& config, int64_t memory = 1 << 30) {
    return test::refusal([&] { make(config, WeightMatrix::Type::kBf16, 1, memory); });
  };
  json config = tiny();
  config.erase("intermediate_size");
  EXPECT_TRUE(test::contains(refused(config), "'intermediate_size' is missing"));
  config = tiny();
  config["vocab_size"] = "many";
  EXPECT_TRUE(test::contains(refused(config), "'vocab_size' is \"many\", expected a positive integer"));
  config = tiny();
  config.update({{"model_type", "mixtral"}, {"num_local_experts", 8}});
  EXPECT_TRUE(test::contains(refused(config), "this one has experts"));
  config = tiny_hybrid();
  config.update({{"model_type", "olmo_hybrid"},  // no default for it
                 {"num_hidden_layers", 2},
                 {"layer_types", {"linear_attention", "full_attention"}}});
  config.erase("linear_num_value_heads");
  EXPECT_TRUE(test::contains(refused(config), "1 layers keep no K and V, and their weights are unknown"));
  const std::string much = refused(tiny(), 1000);
  EXPECT_TRUE(test::contains(much, "its weights take") && test::contains(much, "1000 are available")) << much;
}

}  // namespace
}  // namespace kv
