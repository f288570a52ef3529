// Hugging Face folders against a naive FP64 forward pass that follows transformers' modeling files, and what
// the loader refuses. differential_test.py holds drawn ones against transformers itself.
#include <numbers>
#include <numeric>

#include "harness/model/model.h"
#include "tests/harness/model/tiny_hugging_face.h"

namespace kv::hugging_face_test {
namespace {

using nlohmann::json;
using test::contains;
using test::refusal;
using test::TempFolder;
using test::TinyHuggingFace;

using Row = std::vector<double>;

// One token after the other, as loops over doubles. Knows nothing of kvlab.
class NaiveModel {
 public:
  explicit NaiveModel(const TinyHuggingFace& model)
      : m_(model),
        dim_(m_.number("hidden_size")),
        size_(m_.head_dim()),
        heads_(m_.number("num_attention_heads")) {}

  Row next(int token) {
    const Row& all = at("model.embed_tokens.weight");
    Row x(all.begin() + token * dim_, all.begin() + (token + 1) * dim_);
    for (int l = 0; l < m_.number("num_hidden_layers"); ++l) {
      const std::string layer = "model.layers." + std::to_string(l) + ".";
      add(x, attend(layer + "self_attn.", norm(x, at(layer + "input_layernorm.weight"))));
      const Row y = norm(x, at(layer + "post_attention_layernorm.weight"));
      Row gate = linear(layer + "mlp.gate_proj", y);
      const Row up = linear(layer + "mlp.up_proj", y);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      add(x, linear(layer + "mlp.down_proj", gate));
    }
    ++position_;
    const bool tied = m_.config["tie_word_embeddings"];
    return linear(tied ? "model.embed_tokens" : "lm_head", norm(x, at("model.norm.weight")));
  }

 private:
  const Row& at(const std::string& name) const { return m_.tensors.at(name).values; }

  static void add(Row& x, const Row& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  Row norm(Row x, const Row& weight) const {
    const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
    const double scale = 1 / std::sqrt(squares / dim_ + m_.config["rms_norm_eps"].get<double>());
    for (size_t i = 0; i < x.size(); ++i) x[i] *= scale * weight[i];
    return x;
  }

  Row linear(const std::string& name, const Row& x) const {
    const Row& weight = at(name + ".weight");
    Row y;
    for (auto row = weight.begin(); row != weight.end(); row += static_cast<std::ptrdiff_t>(x.size()))
      y.push_back(std::inner_product(x.begin(), x.end(), row, 0.0));
    if (m_.tensors.contains(name + ".bias")) add(y, at(name + ".bias"));
    return y;
  }

  // modeling_rope_utils.py, _compute_linear_scaling_rope_parameters and _compute_llama3_parameters
  double frequency(int i) const {
    const double plain = 1 / std::pow(m_.config["rope_theta"].get<double>(), 2.0 * i / size_);
    if (!m_.config.contains("rope_scaling")) return plain;
    const json& s = m_.config["rope_scaling"];
    const double factor = s["factor"];
    if (s["rope_type"] == "linear") return plain / factor;
    const double old = s["original_max_position_embeddings"], low = s["low_freq_factor"],
                 high = s["high_freq_factor"], wavelength = 2 * std::numbers::pi / plain;
    if (wavelength < old / high) return plain;
    if (wavelength > old / low) return plain / factor;
    const double smooth = (old / wavelength - low) / (high - low);
    return (1 - smooth) * plain / factor + smooth * plain;
  }

  // x * cos + rotate_half(x) * sin, head by head
  Row rotated(const Row& x) const {
    Row y(x.size());
    for (size_t head = 0; head < x.size(); head += static_cast<size_t>(size_)) {
      for (int i = 0; i < size_; ++i) {
        const int half = size_ / 2;
        const double angle = position_ * frequency(i % half);
        const double other =
            i < half ? -x[head + static_cast<size_t>(i + half)] : x[head + static_cast<size_t>(i - half)];
        y[head + static_cast<size_t>(i)] =
            x[head + static_cast<size_t>(i)] * std::cos(angle) + other * std::sin(angle);
      }
    }
    return y;
  }

  Row attend(const std::string& name, const Row& x) {
    const Row q = rotated(linear(name + "q_proj", x));
    auto &keys = k_[name], &values = v_[name];
    keys.push_back(rotated(linear(name + "k_proj", x)));
    values.push_back(linear(name + "v_proj", x));
    const int group = heads_ / m_.number("num_key_value_heads");
    const bool slides = m_.config["model_type"] == "mistral" && m_.config["sliding_window"].is_number();
    const int window = slides ? m_.number("sliding_window") : position_ + 1;
    Row out(q.size(), 0.0);
    for (int h = 0; h < heads_; ++h) {
      const std::ptrdiff_t from_q = h * size_, from_kv = h / group * size_;
      Row weights(keys.size(), 0.0);
      for (int t = std::max(0, position_ + 1 - window); t <= position_; ++t) {
        const auto key = keys[static_cast<size_t>(t)].begin() + from_kv;
        weights[static_cast<size_t>(t)] =
            std::exp(std::inner_product(key, key + size_, q.begin() + from_q, 0.0) / std::sqrt(size_));
      }
      const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (size_t t = 0; t < values.size(); ++t)
        for (int i = 0; i < size_; ++i)
          out[static_cast<size_t>(from_q + i)] +=
              weights[t] / sum * values[t][static_cast<size_t>(from_kv + i)];
    }
    return linear(name + "o_proj", out);
  }

  const TinyHuggingFace& m_;
  int dim_, size_, heads_;
  int position_ = 0;
  std::map<std::string, std::vector<Row>> k_, v_;
};

struct Case {
  std::string name;
  json changes;
  std::string dtype = "F32";
  int shards = 1;
};

class HuggingFaceForward : public testing::TestWithParam<Case> {};

TEST_P(HuggingFaceForward, EqualsNaiveFp64) {
  const TinyHuggingFace tiny(GetParam().changes, GetParam().dtype, GetParam().shards);
  const TempFolder folder;
  tiny.write(folder.path());
  const model::Model model(folder.path().string());
  std::vector<int> ids;
  for (int i = 0; i < tiny.number("max_position_embeddings"); ++i)
    ids.push_back(i * i % tiny.number("vocab_size"));
  NaiveModel naive(tiny);
  std::vector<double> want;
  for (const int id : ids) {
    const Row logits = naive.next(id);
    want.insert(want.end(), logits.begin(), logits.end());
  }
  for (const size_t chunk : {size_t{1}, size_t{7}, ids.size()}) {
    const double worst = test::largest_difference(test::run_in_chunks(model, ids, chunk), want);
    EXPECT_LT(worst, 1e-4) << "chunk " << chunk;
    EXPECT_GT(worst, 1e-9) << "f32 cannot be this exact; chunk " << chunk;
  }
}

const json kLlama3{{"rope_type", "llama3"},
                   {"factor", 8.0},
                   {"low_freq_factor", 1.0},
                   {"high_freq_factor", 4.0},
                   {"original_max_position_embeddings", 20}};

INSTANTIATE_TEST_SUITE_P(
    Kinds, HuggingFaceForward,
    testing::Values(Case{"llama_gqa", {}}, Case{"tied", {{"tie_word_embeddings", true}}},
                    Case{"mha_derived_head_dim", {{"num_key_value_heads", 4}, {"head_dim", nullptr}}},
                    Case{"mqa", {{"num_key_value_heads", 1}}}, Case{"theta", {{"rope_theta", 1e6}}},
                    Case{"epsilon", {{"rms_norm_eps", 0.1}}},
                    Case{"linear", {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}}}},
                    Case{"llama3", {{"rope_scaling", kLlama3}}}, Case{"biases", {{"attention_bias", true}}},
                    Case{"all_biases", {{"attention_bias", true}, {"mlp_bias", true}}},
                    Case{"scaling_stated_twice",
                         {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 9.0}}},
                          {"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}}}},
                    Case{"mistral_window", {{"model_type", "mistral"}, {"sliding_window", 6}}},
                    Case{"mistral_no_window", {{"model_type", "mistral"}, {"sliding_window", nullptr}}},
                    Case{"qwen2",
                         {{"model_type", "qwen2"}, {"sliding_window", 6}, {"use_sliding_window", false}}},
                    Case{"f16", {}, "F16"}, Case{"bf16_tied", {{"tie_word_embeddings", true}}, "BF16"},
                    Case{"three_shards", {}, "F32", 3}, Case{"bf16_shards", {}, "BF16", 2}),
    [](const auto& tested) { return tested.param.name; });

// Writes a model, lets `damage` at its folder, and returns what loading it says.
template <class Damage>
std::string refusal_after(const TinyHuggingFace& tiny, Damage damage) {
  const TempFolder folder;
  tiny.write(folder.path());
  damage(folder.path());
  return refusal([&] { model::Model(folder.path().string()); });
}

TEST(HuggingFaceFolder, BadWeightsAreRefusedWithWhatAndWhere) {
  TinyHuggingFace tiny;
  tiny.tensors.erase("model.layers.1.mlp.up_proj.weight");
  std::string said = refusal_after(tiny, [](const auto&) {});
  EXPECT_TRUE(contains(said, "tensor model.layers.1.mlp.up_proj.weight is in none of its 1 .safetensors"))
      << said;
  EXPECT_TRUE(contains(said, "[20, 24]")) << said;

  tiny = TinyHuggingFace();
  tiny.config["intermediate_size"] = 21;
  said = refusal_after(tiny, [](const auto&) {});
  EXPECT_TRUE(contains(said, "has the shape [20, 24], expected [21, 24]")) << said;

  said = refusal_after(TinyHuggingFace(), [](const auto& folder) {
    std::filesystem::resize_file(folder / "model.safetensors", 9000);
  });
  EXPECT_TRUE(contains(said, "the file holds")) << said;

  said = refusal_after(TinyHuggingFace({}, "F32", 3), [](const auto& folder) {
    std::filesystem::remove(folder / "model-2-of-3.safetensors");
  });
  EXPECT_TRUE(contains(said, "model-2-of-3.safetensors: No such file")) << said;

  said = refusal_after(TinyHuggingFace(), [](const auto& folder) {
    std::filesystem::copy(folder / "model.safetensors", folder / "b.safetensors");
    std::filesystem::rename(folder / "model.safetensors", folder / "a.safetensors");
  });
  EXPECT_TRUE(contains(said, "is in two files")) << said;

  said = refusal_after(TinyHuggingFace(),
                       [](const auto& folder) { std::filesystem::remove(folder / "model.safetensors"); });
  EXPECT_TRUE(contains(said, "there is no .safetensors in it")) << said;
}

TEST(HuggingFaceFolder, AHeadBesideTheFlagThatTiesItIsUsed) {
  TinyHuggingFace tiny;
  const TempFolder untied, flagged;
  tiny.write(untied.path());
  tiny.config["tie_word_embeddings"] = true;
  tiny.write(flagged.path());
  const std::vector<int> ids = {1, 2, 3};
  const auto logits = [&](const TempFolder& folder) {
    return test::run_in_chunks(model::Model(folder.path().string()), ids, 3);
  };
  EXPECT_EQ(logits(untied), logits(flagged));
}

TEST(HuggingFaceFolder, WhatIsStatedAndNotReadIsRefused) {
  const auto accepted = [](const TinyHuggingFace& tiny) {
    const TempFolder folder;
    tiny.write(folder.path());
    return message_of([&] { model::Model(folder.path().string()); });
  };
  TinyHuggingFace tiny;
  tiny.config.update(json{{"no_such_key", nullptr}, {"use_cache", true}, {"sliding_window", 4}});
  EXPECT_EQ(accepted(tiny), "");
  tiny.tensors["model.layers.0.self_attn.q_proj.bias"] = tiny.tensors["model.norm.weight"];
  EXPECT_TRUE(contains(refusal_after(tiny, [](const auto&) {}),
                       "q_proj.bias [24] is one that its config.json does not ask for"));
  tiny.config["model_type"] = "mistral";  // whose class does not read the key
  tiny.config["attention_bias"] = true;
  tiny.tensors.erase("model.layers.0.self_attn.q_proj.bias");
  EXPECT_EQ(accepted(tiny), "");
}

TEST(HuggingFaceFolder, AModelThatDoesNotFitIsRefusedWithItsBytes) {
  const TinyHuggingFace tiny;
  int64_t values = 0;
  for (const auto& [name, tensor] : tiny.tensors) values += static_cast<int64_t>(tensor.values.size());
  const TempFolder folder;
  tiny.write(folder.path());
  const std::string said = refusal([&] { model::Model(folder.path().string(), 4 * values - 1); });
  EXPECT_TRUE(contains(said, "its weights take " + std::to_string(4 * values) + " bytes")) << said;
  EXPECT_TRUE(contains(said, std::to_string(4 * values - 1) + " are available")) << said;
  EXPECT_NO_THROW(model::Model(folder.path().string(), 4 * values));
}

// Beyond the trained context the formula goes on; a window's answers do not depend on where it lies.
TEST(HuggingFaceFolder, PositionsBeyondTheContextAreRefusedUnlessAskedFor) {
  const TempFolder folder;
  TinyHuggingFace().write(folder.path());
  const model::Model model(folder.path().string());
  const std::vector<int> ids = {1, 2, 3};
  EXPECT_TRUE(contains(refusal([&] { model.forward(ids, 38, model::full_attention(model.config())); }),
                       "positions 38 to 40 asked for, its rotary table has 0 to 39"));
  const auto near = model.forward(ids, 0, model::full_attention(model.config()));
  const auto far = model.forward(ids, 1000, model::full_attention(model.config()), model::Rotary::kBeyond);
  for (size_t i = 0; i < near.size(); ++i) EXPECT_NEAR(near[i], far[i], 1e-3);
}

TEST(HuggingFaceFolder, StepsThatAreNotPossibleAreRefusedBeforeAttentionRuns) {
  const TempFolder folder;
  TinyHuggingFace().write(folder.path());
  const model::Model model(folder.path().string());
  const model::Model::Attention never = [](auto&&...) { FAIL() << "attention ran"; };
  const auto refused = [&](std::vector<int> ids, int64_t first) {
    return refusal([&] { model.forward(ids, first, never); });
  };
  EXPECT_TRUE(contains(refused({1, 1}, 39), "positions 39 to 40 asked for, its rotary table has 0 to 39"));
  EXPECT_TRUE(contains(refused({1}, -1), "positions -1 to -1"));
  EXPECT_TRUE(contains(refused({1, 13}, 0), "token id 13 is not in its vocabulary, 0 to 12"));
  EXPECT_TRUE(contains(refused({-1}, 0), "token id -1"));
  EXPECT_TRUE(model.forward({}, 40, never).empty());
}

TEST(HuggingFaceFolder, WhatIsNoneIsRefused) {
  EXPECT_TRUE(contains(refusal([] { model::Model("stories.bin"); }), "models convert MODEL.bin"));
  EXPECT_TRUE(contains(refusal([] { model::Model{KVLAB_SOURCE_DIR "/tests"}; }),
                       "tests/config.json; expected a Hugging Face config.json"));
}

TEST(HuggingFaceFolder, ForTheCacheNothingIsTurned) {
  const TempFolder folder;
  TinyHuggingFace().write(folder.path());
  const model::Model model(folder.path().string());
  const std::vector<int> ids = {4, 4};
  bool rotated = false;
  const auto look = [&](int layer, int64_t n, const float*, const float* k, const float*, float* out) {
    std::fill_n(out, 4 * n * 8, 0.0f);
    if (layer == 0) rotated = !std::equal(k, k + 8, k + 8);
  };
  model.forward(ids, 0, look, model::Rotary::kCache);
  EXPECT_FALSE(rotated);
  model.forward(ids, 0, look);
  EXPECT_TRUE(rotated);
}

}  // namespace
}  // namespace kv::hugging_face_test
