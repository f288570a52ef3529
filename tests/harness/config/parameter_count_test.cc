// Parameters from the shapes of a config.json: those of published models, to the last one.
#include "harness/config/parameter_count.h"

#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/config/geometry.h"
#include "tests/temp.h"

namespace kv {
namespace {

using nlohmann::json;

// The fields of the published config.json that the file of the same name in configs/models leaves out; it
// states the count.
struct Published {
  const char* preset;
  const char* more;
};

class ParameterCount : public testing::TestWithParam<Published> {
 protected:
  // The whole file, without the stated count.
  static json whole(const Published& model) {
    const std::string folder = KVLAB_SOURCE_DIR "/configs/models/";
    json config = json::parse(std::ifstream(folder + model.preset + ".json"));
    config.update(json::parse(model.more));
    config.erase("num_parameters");
    return config;
  }

  config::Geometry read(const json& config) const {
    std::ofstream(path_) << config;
    return config::read_geometry(path_);
  }

  const test::TempFolder folder_;
  const std::string path_ = (folder_ / "config.json").string();
};

TEST_P(ParameterCount, IsThatOfThePublishedModel) {
  const config::Geometry stated = config::preset_geometry(GetParam().preset),
                         computed = read(whole(GetParam()));
  ASSERT_GT(stated.parameters, 0);
  EXPECT_FALSE(stated.parameters_computed);
  EXPECT_TRUE(computed.parameters_computed);
  EXPECT_EQ(computed.parameters, stated.parameters);
  EXPECT_EQ(computed.weights_bytes, stated.weights_bytes);
}

constexpr Published kPublished[] = {
    {"llama-3.1-8b", R"({"vocab_size": 128256, "intermediate_size": 14336, "tie_word_embeddings": false})"},
    {"llama-3.2-1b", R"({"vocab_size": 128256, "intermediate_size": 8192, "tie_word_embeddings": true})"},
    {"llama-2-7b", R"({"vocab_size": 32000, "intermediate_size": 11008})"},
    {"mistral-7b", R"({"vocab_size": 32000, "intermediate_size": 14336})"},
    {"mistral-nemo-12b", R"({"vocab_size": 131072, "intermediate_size": 14336})"},
    {"mixtral-8x7b", R"({"vocab_size": 32000, "intermediate_size": 14336, "num_local_experts": 8})"},
    {"qwen2.5-7b", R"({"vocab_size": 152064, "intermediate_size": 18944, "tie_word_embeddings": false})"},
    {"qwen2.5-0.5b", R"({"vocab_size": 151936, "intermediate_size": 4864, "tie_word_embeddings": true})"},
    {"qwen3-8b", R"({"vocab_size": 151936, "intermediate_size": 12288, "attention_bias": false})"},
    {"qwen3-30b-a3b", R"({"vocab_size": 151936, "intermediate_size": 6144, "moe_intermediate_size": 768,
                          "num_experts": 128, "decoder_sparse_step": 1, "mlp_only_layers": []})"},
    {"gemma-2b", R"({"vocab_size": 256000, "intermediate_size": 16384})"},
    {"gemma-2-2b", R"({"vocab_size": 256000, "intermediate_size": 9216})"},
    {"gemma-3-1b", R"({"vocab_size": 262144, "intermediate_size": 6912})"},
    {"phi-4", R"({"vocab_size": 100352, "intermediate_size": 17920})"},
    {"smollm3-3b", R"({"vocab_size": 128256, "intermediate_size": 11008})"},
    {"deepseek-v2-lite", R"({"vocab_size": 102400, "intermediate_size": 10944, "moe_intermediate_size": 1408,
                             "n_routed_experts": 64, "n_shared_experts": 2, "first_k_dense_replace": 1,
                             "q_lora_rank": null, "qk_nope_head_dim": 128, "v_head_dim": 128})"},
    {"deepseek-v3", R"({"vocab_size": 129280, "intermediate_size": 18432, "moe_intermediate_size": 2048,
                        "n_routed_experts": 256, "n_shared_experts": 1, "first_k_dense_replace": 3,
                        "q_lora_rank": 1536, "qk_nope_head_dim": 128, "v_head_dim": 128})"},
};
INSTANTIATE_TEST_SUITE_P(Models, ParameterCount, testing::ValuesIn(kPublished), [](const auto& model) {
  std::string name = model.param.preset;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

TEST(SharedExperts, AreCountedWithTheirGate) {  // Qwen1.5-MoE-A2.7B
  EXPECT_EQ(config::count_parameters(json::parse(R"({"model_type": "qwen2_moe", "hidden_size": 2048,
      "intermediate_size": 5632, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts": 60,
      "num_attention_heads": 16, "num_key_value_heads": 16, "num_hidden_layers": 24, "decoder_sparse_step": 1,
      "vocab_size": 151936, "tie_word_embeddings": false})")),
            14'315'784'192);
}

class IncompleteFile : public ParameterCount {};

TEST_P(IncompleteFile, LeavesTheCountUnknown) {
  const json config = whole(GetParam());
  for (const char* missing : {"vocab_size", "intermediate_size"}) {
    json cut = config;
    cut.erase(missing);
    EXPECT_EQ(read(cut).parameters, 0) << missing;
    EXPECT_EQ(read(cut).weights_bytes, 0) << missing;
  }
  json other = config;
  other["model_type"] = "granite";  // is not counted
  EXPECT_EQ(read(other).parameters, 0);
  for (const json& wrong : {json("many"), json(-1), json(1.5), json(UINT64_MAX)}) {
    json changed = config;
    changed["vocab_size"] = wrong;
    EXPECT_EQ(read(changed).parameters, 0) << wrong;
  }
  json huge = config;
  huge["vocab_size"] = huge["intermediate_size"] = INT64_MAX;
  EXPECT_EQ(read(huge).parameters, 0);
}

// Biases and a stated count, and weights that are not the text model's alone, or not in the dtype.
TEST_P(IncompleteFile, WhatElseIsSaidCounts) {
  json config = whole(GetParam());
  const config::Geometry plain = read(config);
  config["attention_bias"] = config["mlp_bias"] = true;
  const int64_t biases = (plain.q_heads + 2 * plain.kv_heads) * plain.head_dim + 4096 + 2 * 14336 + 4096;
  EXPECT_EQ(read(config).parameters, plain.parameters + 32 * biases);
  config["num_parameters"] = 1000;
  EXPECT_EQ(read(config).weights_bytes, 2000);
  EXPECT_FALSE(read(config).parameters_computed);
  config.erase("num_parameters");
  EXPECT_EQ(read({{"text_config", config}}).parameters, 0);
  config["quantization_config"] = {{"bits", 4}};
  EXPECT_EQ(read(config).weights_bytes, 0);
}

INSTANTIATE_TEST_SUITE_P(Llama, IncompleteFile, testing::Values(kPublished[0]));

}  // namespace
}  // namespace kv
