// Hugging Face config.json files, as the families of models write them.
#include "harness/config/geometry.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include "harness/config/model_types.h"
#include "harness/io/json.h"
#include "harness/io/mapped_file.h"
#include "tests/message_of.h"
#include "tests/temp.h"

namespace kv {
namespace {

class GeometryFile : public testing::Test {
 protected:
  config::Geometry read(const std::string& json, bool trusted = false) const {
    std::ofstream(path_) << json;
    return config::read_geometry(path_, trusted);
  }

  void expect_refused(const std::string& json, const std::string& part, bool trusted = false) const {
    const std::string said = test::refusal([&] { read(json, trusted); });
    EXPECT_TRUE(said.starts_with(path_ + ": ") && test::contains(said, part)) << json << ": " << said;
  }

  const test::TempFolder folder_;
  const std::string path_ = (folder_ / "config.json").string();
};

// "8 layers * 2 + 1": products of the numbers that begin the factors, added.
int64_t value_of(const std::string& formula) {
  int64_t sum = 0;
  std::stringstream terms(formula);
  for (std::string term; std::getline(terms, term, '+');) {
    int64_t product = 1;
    std::stringstream factors(term);
    for (std::string factor; std::getline(factors, factor, '*');) product *= std::stoll(factor);
    sum += product;
  }
  return sum;
}

// model_configs.json: published config.json files without the keys that no size depends on, but for those that sound as if
// one did; and the bytes of their caches in f16 at 131,072 tokens, by a formula written by hand.
TEST_F(GeometryFile, EveryTypesBytesAreThoseOfItsFormula) {
  const nlohmann::json models = io::parse_json(
      io::read_text(KVLAB_SOURCE_DIR "/tests/harness/config/model_configs.json"), "model_configs.json");
  std::set<std::string> types;
  for (const auto& [model, facts] : models.items()) {
    config::Geometry g;
    const std::string config = facts["config"].dump();
    EXPECT_EQ(message_of([&] { g = read(config); }), "") << model;
    const std::vector<int64_t> lengths{131072};
    EXPECT_EQ(
        predicted_bytes(LayerSpecs(parse_spec("contiguous/f16")), config::shape_of(g, 131072, 1), lengths),
        facts["bytes"])
        << model << ": " << config::summary(g);
    EXPECT_EQ(facts["bytes"], value_of(facts["formula"])) << model;
    types.insert(config::read_model_file(path_).settings.text("model_type", ""));
  }
  EXPECT_GE(types.size(), 60u);
}

const std::string kLlama =
    R"({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 64, "hidden_size": 512)";

TEST_F(GeometryFile, HeadDimIsDividedOutWhereItIsNotStated) {
  const std::string start = R"({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 8)";
  const config::Geometry g = read(start + R"(, "hidden_size": 512})");
  EXPECT_EQ(g.layers, 2);
  EXPECT_EQ(g.q_heads, 8);
  EXPECT_EQ(g.kv_heads, 8);  // no num_key_value_heads: every head has its own
  EXPECT_EQ(g.head_dim, 64);
  EXPECT_EQ(read(start + R"(, "num_key_value_heads": 2, "hidden_size": 500, "head_dim": 128})").head_dim,
            128);
  EXPECT_EQ(read(start + R"(, "hidden_size": 512, "head_dim": null})").head_dim, 64);
}

TEST_F(GeometryFile, UnknownTypesAndKeysAreNamed) {
  const std::string rest = kLlama.substr(kLlama.find(',')),
                    trust = "; --trust-config, or trust_config = true in [model],";
  expect_refused("{" + rest.substr(1) + "}",
                 "'model_type' is missing, which says what the layers keep" + trust);
  expect_refused(R"({"model_type": "lama")" + rest + "}",
                 "kvlab does not know what the layers of model_type 'lama' keep" + trust +
                     " counts K and V of every "
                     "token in every layer; did you mean 'llama', 'diffllama' or 'llama4_text'?");
  EXPECT_EQ(read(R"({"model_type": "new_thing")" + rest + "}", true).layers, 2);
  for (const char* key :
       {"n_head_kv", "mb_per_layer", "total_ut_steps", "attention_chunk_size", "kv_reuse_group",
        "layer_types", "Mamba_state", "cla_share_factor", "global_attn_idx", "index_topk",
        "multi_query_group_num", "conv_L_cache", "mixers"}) {
    const std::string file = kLlama + R"(, "num_key_value_heads": 2, ")" + key + "\": ";
    expect_refused(file + "[3]}",
                   std::string("'") + key + "' may change what the layers of a llama model keep");
    for (const char* off : {"null", "false", "0", "[]", "{}", "\"\""})
      EXPECT_EQ(read(file + off + "}").kv_heads, 2);
    const config::Geometry trusted = read(file + "[3]}", true);
    EXPECT_TRUE(test::contains(config::summary(trusted), std::string("'") + key + "' is not read"));
    // Who knows what the key says of the KV heads?
    expect_refused(kLlama + ", \"" + key + "\": [3]}",
                   "'num_key_value_heads' is missing, and '" + std::string(key), true);
  }
  EXPECT_EQ(read(kLlama + R"(, "vision_tower": 3, "output_style": 4})").layers, 2);
}

TEST_F(GeometryFile, AKeyCountsForTypesThatReadIt) {
  EXPECT_EQ(read(kLlama + R"(, "sliding_window": 8, "use_sliding_window": true})").windowed_layers, 0);
  EXPECT_EQ(read(kLlama + R"(, "kv_lora_rank": null})").latent_dim, 0);
  const std::string rest = kLlama.substr(kLlama.find(','));
  EXPECT_EQ(
      read(R"({"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 8)" + rest + "}").window,
      8);
  expect_refused(R"({"model_type": "phi", "sliding_window": 8)" + rest + "}", "'sliding_window' may change");
}

TEST_F(GeometryFile, LayersForDraftsAreNotCounted) {
  EXPECT_EQ(config::summary(read(kLlama + R"(, "num_nextn_predict_layers": 1})")),
            "2 layers, 4 KV heads of 64 for 4 query heads; layers for drafts (num_nextn_predict_layers: 1) "
            "have their own caches, which are not counted.");
  EXPECT_EQ(config::summary(read(kLlama + R"(, "num_nextn_predict_layers": 0})")),
            "2 layers, 4 KV heads of 64 for 4 query heads.");
}

TEST_F(GeometryFile, ALayerWithAWindowIsToldFromOneWithout) {
  const auto windowed = [&](const std::string& type, int layers, const std::string& rest) {
    return read(R"({"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64, "model_type": ")" +
                type + R"(", "num_hidden_layers": )" + std::to_string(layers) + rest + "}")
        .windowed_layers;
  };
  EXPECT_EQ(windowed("mistral", 6, R"(, "sliding_window": 128)"), 6);
  EXPECT_EQ(windowed("mistral", 6, ""), 6);  // its class's 4096
  EXPECT_EQ(windowed("mistral", 6, R"(, "sliding_window": null)"), 0);
  // Every third layer is global, and those that are left over are local.
  EXPECT_EQ(windowed("cohere2", 8, R"(, "sliding_window_pattern": 3)"), 6);
  EXPECT_EQ(windowed("olmo3", 3,
                     R"(, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"])"),
            2);
  EXPECT_EQ(windowed("exaone4", 5, R"(, "sliding_window_pattern": "LG")"), 2);  // the last layer is global
  EXPECT_EQ(windowed("gemma2", 26, ""), 13);
  EXPECT_EQ(windowed("gemma3_text", 62, R"(, "sliding_window": 1024)"), 52);
  EXPECT_EQ(windowed("qwen2", 24, R"(, "sliding_window": 32768)"), 0);
  EXPECT_EQ(windowed("qwen2", 30, R"(, "use_sliding_window": true)"), 2);
  EXPECT_EQ(windowed("qwen2", 6, R"(, "use_sliding_window": true, "max_window_layers": 0)"), 6);
  EXPECT_EQ(windowed("qwen3_moe", 6, R"(, "use_sliding_window": true)"), 6);
  EXPECT_EQ(windowed("smollm3", 8, R"(, "use_sliding_window": true, "sliding_window": 128)"), 2);
  EXPECT_EQ(windowed("llama4_text", 8, ""), 6);
  EXPECT_EQ(windowed("llama4_text", 8, R"(, "no_rope_layers": [0, 0, 0, 0, 0, 0, 0, 1])"), 1);
  EXPECT_EQ(windowed("llama4_text", 8, R"(, "attention_chunk_size": null)"), 0);
  const config::Geometry gemma = read(R"({"text_config": {"model_type": "gemma3_text", "hidden_size": 2560,
      "num_hidden_layers": 34, "sliding_window": 1024}, "torch_dtype": "bfloat16"})");
  EXPECT_EQ(gemma.head_dim, 256);  // not hidden_size / heads
  EXPECT_EQ(gemma.kv_heads, 4);
  EXPECT_EQ(gemma.window, 1024);
  EXPECT_EQ(gemma.windowed_layers, 29);
  EXPECT_EQ(gemma.dtype, "bfloat16");
}

TEST_F(GeometryFile, LayersSayWhatTheyAre) {
  const std::string start =
      R"({"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "model_type": "gemma3n_text",
          "num_hidden_layers": )";
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
  expect_refused(start + types + R"(, "num_kv_shared_layers": 4})",
                 "layer 2 shares its K and V, and no earlier layer");
  const config::Geometry hybrid =
      read(R"({"model_type": "qwen3_next", "num_attention_heads": 8, "num_hidden_layers": 10,
      "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 32})");
  EXPECT_EQ(hybrid.kinds[0].kind + hybrid.kinds[3].kind, "linearfull");
  EXPECT_EQ(hybrid.layers, 2);
  EXPECT_EQ(hybrid.model_layers, 10);
  EXPECT_EQ(linear_state_bytes(hybrid.linear), 4 * 16 * 32 * 4);
}

TEST_F(GeometryFile, ASummarySaysWhatOtherLayersKeep) {
  const std::string rest = R"("num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64)";
  EXPECT_EQ(config::summary(read(R"({"model_type": "phi4flash", "num_hidden_layers": 8, "mb_per_layer": 2,
                                     "sliding_window": 512, )" +
                                 rest + "}")),
            "8 layers, of which 3 keep K and V (1 read the cache of an earlier layer; the states of the "
            "other layers do not grow and are not counted), 2 of them with a window of 512 tokens, 2 KV "
            "heads of 64 for 4 query heads.");
  EXPECT_EQ(read(R"({"model_type": "nemotron_h", "layers_block_type": ["mamba", "moe", "attention"], )" +
                 rest + "}")
                .layers,
            1);
}

TEST_F(GeometryFile, WeightsAreParametersOfTheirDtype) {
  const std::string start = kLlama + R"(, "num_parameters": 1000)";
  EXPECT_EQ(read(start + R"(, "torch_dtype": "bfloat16"})").weights_bytes, 2000);
  EXPECT_EQ(read(start + R"(, "dtype": "float32"})").weights_bytes, 4000);
  EXPECT_EQ(read(start + "}").weights_bytes, 0);
  EXPECT_EQ(read(start + R"(, "torch_dtype": "bfloat16", "quantization_config": {"bits": 4}})").weights_bytes,
            0);
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
