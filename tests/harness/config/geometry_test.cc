// Hugging Face config.json files, as the families of models write them.
#include "harness/config/geometry.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/message_of.h"
#include "tests/temp.h"

namespace kv {
namespace {

class GeometryFile : public testing::Test {
 protected:
  config::Geometry read(const std::string& json) const {
    std::ofstream(path_) << json;
    return config::read_geometry(path_);
  }

  void expect_refused(const std::string& json, const std::string& part) const {
    const std::string said = test::refusal([&] { read(json); });
    EXPECT_TRUE(said.starts_with(path_ + ": ") && test::contains(said, part)) << json << ": " << said;
  }

  const test::TempFolder folder_;
  const std::string path_ = (folder_ / "config.json").string();
};

TEST_F(GeometryFile, HeadDimIsDividedOutWhereItIsNotStated) {
  const config::Geometry g =
      read(R"({"num_hidden_layers": 2, "num_attention_heads": 8, "hidden_size": 512})");
  EXPECT_EQ(g.layers, 2);
  EXPECT_EQ(g.q_heads, 8);
  EXPECT_EQ(g.kv_heads, 8);  // no num_key_value_heads: every head has its own
  EXPECT_EQ(g.head_dim, 64);
}

TEST_F(GeometryFile, AStatedHeadDimIsWhatCounts) {
  const config::Geometry g = read(
      R"({"num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 500,
          "head_dim": 128})");
  EXPECT_EQ(g.kv_heads, 2);
  EXPECT_EQ(g.head_dim, 128);
  EXPECT_EQ(read(R"({"num_hidden_layers": 2, "num_attention_heads": 8, "hidden_size": 512, "head_dim": null,
                     "num_key_value_heads": null})")
                .head_dim,
            64);
}

TEST_F(GeometryFile, MultimodalModelsNestTheTextModel) {
  const config::Geometry g = read(R"({"num_attention_heads": 99, "text_config":
      {"num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 32}})");
  EXPECT_EQ(g.layers, 3);
  EXPECT_EQ(g.q_heads, 4);
  EXPECT_EQ(g.head_dim, 8);
}

TEST_F(GeometryFile, OlderFamiliesHaveOtherNames) {
  const config::Geometry gpt2 = read(R"({"n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024})");
  EXPECT_EQ(gpt2.layers, 12);
  EXPECT_EQ(gpt2.kv_heads, 12);
  EXPECT_EQ(gpt2.head_dim, 64);
  EXPECT_EQ(gpt2.max_positions, 1024);
  const std::string falcon = R"("num_hidden_layers": 2, "num_attention_heads": 8, "num_kv_heads": 8,
      "hidden_size": 512, "multi_query": true)";
  EXPECT_EQ(read("{" + falcon + "}").kv_heads, 1);
  EXPECT_EQ(read("{" + falcon + R"(, "new_decoder_architecture": true})").kv_heads, 8);
}

TEST_F(GeometryFile, ALayerWithAWindowIsToldFromOneWithout) {
  const std::string heads = R"("num_attention_heads": 4, "head_dim": 64, "num_hidden_layers": )";
  const auto windowed = [&](const std::string& rest) {
    return read("{" + heads + rest + "}").windowed_layers;
  };
  EXPECT_EQ(windowed(R"(6, "sliding_window": 128)"), 6);
  EXPECT_EQ(windowed(R"(6, "sliding_window": null)"), 0);
  EXPECT_EQ(windowed(R"(6, "sliding_window": 128, "use_sliding_window": false)"), 0);
  EXPECT_EQ(windowed(R"(6, "sliding_window": 128, "use_sliding_window": true, "max_window_layers": 4)"), 2);
  EXPECT_EQ(windowed(R"(6, "sliding_window": 128, "use_sliding_window": true, "max_window_layers": 0)"), 6);
  // Every third layer is global, and those that are left over are local.
  EXPECT_EQ(windowed(R"(8, "sliding_window": 128, "sliding_window_pattern": 3)"), 6);
  EXPECT_EQ(windowed(R"(3, "sliding_window": 128,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention"])"),
            2);
  // The files of these families leave it to their class.
  EXPECT_EQ(windowed(R"(26, "model_type": "gemma2")"), 13);
  EXPECT_EQ(windowed(R"(62, "model_type": "gemma3_text", "sliding_window": 1024)"), 52);
  EXPECT_EQ(windowed(R"(24, "model_type": "gpt_oss", "sliding_window": 128)"), 12);
  EXPECT_EQ(windowed(R"(24, "model_type": "qwen2", "sliding_window": 32768)"), 0);
  EXPECT_EQ(windowed(R"(30, "model_type": "qwen2", "sliding_window": 32768, "use_sliding_window": true)"), 2);
  const config::Geometry gemma = read(R"({"text_config": {"model_type": "gemma3_text", "hidden_size": 2560,
      "num_hidden_layers": 34, "sliding_window": 1024}, "torch_dtype": "bfloat16"})");
  EXPECT_EQ(gemma.head_dim, 256);  // not hidden_size / heads
  EXPECT_EQ(gemma.kv_heads, 4);
  EXPECT_EQ(gemma.window, 1024);
  EXPECT_EQ(gemma.windowed_layers, 29);
  EXPECT_EQ(gemma.dtype, "bfloat16");
}

TEST_F(GeometryFile, OnlyAttentionLayersOfAHybridCount) {
  const std::string heads = R"({"num_attention_heads": 4, "head_dim": 64, "num_hidden_layers": )";
  const std::vector<ModelLayer> kinds = read(heads + R"(3, "sliding_window": 7,
      "layer_types": ["sliding_attention", "full_attention", "linear_attention"]})")
                                            .kinds;
  ASSERT_EQ(kinds.size(), 3u);
  EXPECT_EQ(kinds[0].kind + kinds[1].kind + kinds[2].kind, "slidingfulllinear");
  EXPECT_EQ(kinds[0].window, 7);
  EXPECT_EQ(kinds[1].window, 0);
  const config::Geometry interval = read(heads + R"(10, "full_attention_interval": 4})");
  EXPECT_EQ(interval.layers, 2);
  EXPECT_EQ(interval.model_layers, 10);
  EXPECT_EQ(read(heads + R"(32, "attn_layer_period": 8, "attn_layer_offset": 4})").layers, 4);
  EXPECT_EQ(read(heads + R"(9, "attn_layer_period": 8, "attn_layer_offset": 0})").layers, 2);
  EXPECT_EQ(read(heads + R"(3, "layer_types": ["linear_attention", "mamba", "full_attention"]})").layers, 1);
}

TEST_F(GeometryFile, LayersSayWhatTheyAre) {
  const std::string start = R"({"num_attention_heads": 4, "head_dim": 64, "num_hidden_layers": )";
  const std::string types =
      R"(6, "sliding_window": 32, "layer_types": ["sliding_attention", "sliding_attention",
      "full_attention", "sliding_attention", "full_attention", "sliding_attention"])";
  const config::Geometry g = read(start + types + R"(, "num_kv_shared_layers": 2})");
  std::vector<std::string> kinds;
  std::vector<int> shares;
  for (const ModelLayer& layer : g.kinds) {
    kinds.push_back(layer.kind + " " + std::to_string(layer.window));
    shares.push_back(layer.shares);
  }
  EXPECT_EQ(kinds, (std::vector<std::string>{"sliding 32", "sliding 32", "full 0", "sliding 32", "full 0",
                                             "sliding 32"}));
  EXPECT_EQ(shares, (std::vector<int>{-1, -1, -1, -1, 2, 3}));
  EXPECT_EQ(g.layers, 4);
  EXPECT_EQ(g.windowed_layers, 3);
  EXPECT_THROW(read(start + types + R"(, "num_kv_shared_layers": 6})"), std::invalid_argument);
  EXPECT_THROW(read(start + types + R"(, "num_kv_shared_layers": 4})"), std::invalid_argument);
  const config::Geometry hybrid = read(start + R"(2, "layer_types": ["linear_attention", "full_attention"],
      "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 32})");
  EXPECT_EQ(hybrid.kinds[0].kind, "linear");
  EXPECT_EQ(linear_state_bytes(hybrid.linear), 4 * 16 * 32 * 4);
}

TEST_F(GeometryFile, ALatentIsOneRow) {
  const config::Geometry g =
      read(R"({"num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
      "kv_lora_rank": 512, "qk_rope_head_dim": 64})");
  EXPECT_EQ(g.latent_dim, 576);
  EXPECT_EQ(g.value_dim, 512);
  EXPECT_EQ(g.head_dim, 576);
  EXPECT_EQ(g.kv_heads, 1);
}

TEST_F(GeometryFile, WeightsAreParametersOfTheirDtype) {
  const std::string start =
      R"({"num_hidden_layers": 1, "num_attention_heads": 4, "head_dim": 64, "num_parameters": 1000)";
  EXPECT_EQ(read(start + R"(, "torch_dtype": "bfloat16"})").weights_bytes, 2000);
  EXPECT_EQ(read(start + R"(, "dtype": "float32"})").weights_bytes, 4000);
  EXPECT_EQ(read(start + "}").weights_bytes, 0);
  EXPECT_EQ(read(start + R"(, "torch_dtype": "bfloat16", "quantization_config": {"bits": 4}})").weights_bytes,
            0);
}

TEST_F(GeometryFile, WhatItCannotSayIsRefused) {
  const std::string start = R"({"num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 64, )";
  for (const char* key : {"block_configs", "index_head_dim", "attention_chunk_size"})
    expect_refused(start + "\"" + key + "\": 1}", std::string("'") + key + "' changes what the layers keep");
  EXPECT_EQ(read(start + R"("num_kv_shared_layers": 0, "is_encoder_decoder": false})").layers, 2);
  expect_refused(start + R"("layer_types": ["full_attention"]})",
                 "'layer_types' must be a list of num_hidden_layers (2)");
  expect_refused(start + R"("layer_types": ["full_attention", "mystery"]})", "has \"mystery\"");
  expect_refused(start + R"("layer_types": ["mamba", "mamba"]})", "no layer keeps K and V");
  expect_refused(start + R"("layer_types": ["sliding_attention", "mamba"]})", "'sliding_window' is missing");
  expect_refused(start + R"("kv_lora_rank": 512})", "'qk_rope_head_dim' is missing");
  expect_refused(start + R"("num_key_value_heads": [1, 2]})", "must be a positive integer, not [1,2]");
}

TEST_F(GeometryFile, EveryMistakeIsNamed) {
  for (const char* text : {"", "{", "\xff"}) expect_refused(text, "line 1, column ");
  for (const char* text : {"[]", "3"}) expect_refused(text, "not a JSON object");
  expect_refused("{}", "'num_hidden_layers' is missing");
  expect_refused(R"({"num_hidden_layers": "2"})", "must be a positive integer, not \"2\"");
  expect_refused(R"({"num_hidden_layers": 0})", "must be a positive integer, not 0");
  expect_refused(R"({"num_hidden_layers": -1})", "must be a positive integer, not -1");
  expect_refused(R"({"num_hidden_layers": 18446744073709551615})", "must be a positive integer");
  expect_refused(R"({"num_hidden_layers": 1, "num_attention_heads": 4})", "'hidden_size' is missing");
  expect_refused(R"({"num_hidden_layers": 1, "num_attention_heads": 4, "hidden_size": 2})",
                 "hidden_size (2) must be a multiple of num_attention_heads (4)");
  expect_refused(R"({"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 3,
                       "head_dim": 8})",
                 "num_attention_heads (4) must be a multiple of num_key_value_heads (3)");
}

TEST(Geometry, EveryPresetIsRead) {
  EXPECT_GE(config::preset_names().size(), 60u);
  for (const std::string& name : config::preset_names()) {
    const config::Geometry g = config::preset_geometry(name);
    EXPECT_EQ(g.name, name);
    EXPECT_GE(g.q_heads, g.kv_heads) << name;
    EXPECT_TRUE(g.latent_dim > 0 || g.head_dim % 8 == 0) << name;
  }
}

TEST(Geometry, PresetsAreThePublishedModels) {
  const config::Geometry llama = config::preset_geometry("llama-3-8b"),
                         mistral = config::preset_geometry("mistral-7b");
  for (const config::Geometry& g : {llama, mistral}) {
    EXPECT_EQ(g.layers, 32);
    EXPECT_EQ(g.q_heads, 32);
    EXPECT_EQ(g.kv_heads, 8);
    EXPECT_EQ(g.head_dim, 128);
  }
  EXPECT_EQ(config::preset_geometry("llama-2-7b").kv_heads, 32);
  EXPECT_EQ(config::preset_geometry("llama-2-7b").weights_bytes,
            13476831232);  // 2 * 6738415616, as published
  EXPECT_EQ(config::preset_geometry("tinyllama-1.1b").head_dim, 64);
  for (const char* name : {"gpt-9", "", "../ci", "/etc/passwd"}) {
    EXPECT_THROW(config::preset_geometry(name), std::invalid_argument) << name;
  }
}

}  // namespace
}  // namespace kv
