// Each family's logits against those of transformers, committed with the script that made them (family_models.py), and
// what of a family's config.json is refused.
#include <gtest/gtest.h>

#include "harness/config/geometry.h"
#include "harness/model/model.h"
#include "tests/harness/model/family_cases.h"

namespace kv {
namespace {

using nlohmann::json;
using test::contains;
using test::TempFolder;
using test::TinyHuggingFace;

std::vector<float> logits_of(const TinyHuggingFace& tiny, size_t chunk) {
  const TempFolder folder;
  tiny.write(folder.path());
  const model::Model model(folder.path().string());
  return test::run_in_chunks(model, test::family_tokens(), chunk);
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  const json cases = test::family_cases();
  for (const auto& [name, value] : cases.items())
    if (name != "versions") names.push_back(name);
  return names;
}

class Family : public testing::TestWithParam<std::string> {};

TEST_P(Family, LogitsEqualThoseOfTransformers) {
  const std::vector<float> want = test::family_logits(GetParam());
  const auto [low, high] = std::minmax_element(want.begin(), want.end());
  EXPECT_GT(*high - *low, 1) << "logits so alike would agree by accident";
  for (const size_t chunk : {size_t{1}, size_t{7}, size_t{40}}) {
    const double worst = test::largest_difference(logits_of(test::family_model(GetParam()), chunk), want);
    EXPECT_LT(worst, 1e-4) << "chunk " << chunk;
    EXPECT_GT(worst, 1e-9) << "two f32 programs are not this alike; chunk " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Family, testing::ValuesIn(case_names()),
                         [](const auto& tested) { return tested.param; });

// Everything that tells a family from Llama matters to the logits of its case: without it they are others.
TEST(Families, EverySettingMatters) {
  const auto differs = [](const std::string& name, const json& changes) {
    TinyHuggingFace tiny = test::family_model(name);
    tiny.config.merge_patch(changes);
    EXPECT_GT(test::largest_difference(logits_of(tiny, 40), test::family_logits(name)), 1e-3)
        << name << " " << changes;
  };
  differs("mistral", {{"sliding_window", 9}});
  differs("qwen2_mixed", {{"max_window_layers", 2}});
  differs("qwen3", {{"use_sliding_window", true}});
  differs("gemma2", {{"sliding_window", 9}});
  differs("gemma2", {{"query_pre_attn_scalar", 16}});
  differs("gemma2", {{"attn_logit_softcapping", 30.0}});
  differs("gemma2", {{"final_logit_softcapping", 30.0}});
  differs("gemma2", {{"hidden_activation", "silu"}});
  differs("gemma3", {{"sliding_window_pattern", 2}});
  differs("gemma3", {{"rope_local_base_freq", 1000.0}});
  differs("gemma3", {{"rope_scaling", {{"factor", 2.0}}}});
  differs("gpt2", {{"layer_norm_epsilon", 0.1}});
  differs("gpt_oss", {{"num_experts_per_tok", 1}});
  differs("gpt_oss", {{"swiglu_limit", 7.0}});
  differs("gpt_oss", {{"rope_scaling", {{"truncate", true}}}});
  differs("gpt_oss", {{"rope_scaling", {{"attention_factor", 1.0}}}});
  differs("gpt_oss", {{"layer_types", {"full_attention", "full_attention", "full_attention"}}});
  differs("nanochat", {{"final_logit_softcapping", 30.0}});
  differs("nanochat", {{"hidden_act", "silu"}});
  differs("qwen3_5", {{"partial_rotary_factor", 0.5}});
  differs("qwen3_5", {{"rope_parameters", {{"rope_theta", 1000.0}}}});
}

TEST(Families, EverySinkMatters) {
  TinyHuggingFace tiny = test::family_model("gpt_oss");
  tiny.tensors.at("model.layers.1.self_attn.sinks").values[3] += 1;
  EXPECT_GT(test::largest_difference(logits_of(tiny, 40), test::family_logits("gpt_oss")), 1e-3);
}

// Gemma 3 from 4b on is a part of a multimodal model.
TEST(Families, ATextModelInsideAnotherIsFound) {
  for (const std::string prefix : {"language_model.", "model.language_"}) {
    TinyHuggingFace tiny = test::family_model("gemma3"), nested = tiny;
    nested.config = {
        {"model_type", "gemma3"}, {"text_config", tiny.config}, {"vision_config", {{"layers", 2}}}};
    nested.tensors = {{"vision_tower.weight", {{2}, {1, 1}}}};
    for (const auto& [name, tensor] : tiny.tensors)
      nested
          .tensors[(prefix == "language_model." ? prefix + name : "model.language_model." + name.substr(6))] =
          tensor;
    EXPECT_LT(test::largest_difference(logits_of(nested, 40), test::family_logits("gemma3")), 1e-4) << prefix;
  }
}

// One reading serves tables and the forward pass: Llama's class has no windows, whatever a file says.
TEST(Families, AKeyThatTheTypeIgnoresCountsNowhere) {
  TinyHuggingFace tiny = test::family_model("llama_saved");
  tiny.config["sliding_window"] = 8;
  const TempFolder folder;
  tiny.write(folder.path());
  const config::Geometry g = config::read_geometry((folder / "config.json").string());
  EXPECT_EQ(g.windowed_layers, 0);
  const model::Model model(folder.path().string());
  for (const ModelLayer& layer : model.config().kinds) EXPECT_EQ(layer.window, 0);
}

// refused.json: a family, or a tiny Llama, what is changed in its config.json, and what is said of it.
TEST(Families, BadConfigsAreRefusedInOneLine) {
  for (const json& row :
       json::parse(std::ifstream(KVLAB_SOURCE_DIR "/tests/harness/model/families/refused.json"))) {
    TinyHuggingFace tiny = row[0] == "tiny" ? TinyHuggingFace() : test::family_model(row[0]);
    tiny.config.merge_patch(row[1]);
    const TempFolder folder;
    tiny.write(folder.path());
    const std::string said = test::refusal([&] { model::Model(folder.path().string()); });
    EXPECT_TRUE(contains(said, row[2]) && contains(said, "config.json: ")) << row << ": " << said;
  }
}

TEST(Families, AMissingTensorIsNamed) {
  for (const auto& [name, tensor] :
       std::map<std::string, std::string>{{"qwen3", "model.layers.2.self_attn.k_norm.weight"},
                                          {"gemma2", "model.layers.0.post_feedforward_layernorm.weight"},
                                          {"gpt2", "h.1.attn.c_attn.bias"},
                                          {"gpt2_saved", "transformer.wpe.weight"},
                                          {"gpt_oss", "model.layers.1.self_attn.sinks"},
                                          {"gpt_oss_saved", "model.layers.1.mlp.experts.down_proj"},
                                          {"nanochat", "model.layers.1.mlp.fc2.weight"},
                                          {"qwen3_5", "model.layers.0.linear_attn.conv1d.weight"},
                                          {"qwen3_5", "model.layers.1.self_attn.q_norm.weight"}}) {
    TinyHuggingFace tiny = test::family_model(name);
    ASSERT_EQ(tiny.tensors.erase(tensor), 1u) << tensor;
    const TempFolder folder;
    tiny.write(folder.path());
    const std::string said = test::refusal([&] { model::Model(folder.path().string()); });
    EXPECT_TRUE(contains(said, "tensor " + tensor + " is in none of its 1 .safetensors")) << said;
  }
}

TEST(Families, LearnedPositionsEndWhereTheyEnd) {
  const TempFolder folder;
  test::family_model("gpt2").write(folder.path());
  const model::Model model(folder.path().string());
  const std::vector<int> ids = {1, 2};
  const std::string said = test::refusal(
      [&] { model.forward(ids, 63, model::full_attention(model.config()), model::Rotary::kBeyond); });
  EXPECT_TRUE(contains(said, "positions 63 to 64 asked for, its learned positions are 0 to 63")) << said;
}

}  // namespace
}  // namespace kv
