// Hugging Face config.json files, as the families of models write them.
#include "harness/geometry.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace kv {
namespace {

class GeometryFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  Geometry read(const std::string& json) const {
    std::ofstream(path_) << json;
    return read_geometry(path_);
  }

  std::string refusal(const std::string& json) const {
    try {
      read(json);
    } catch (const std::invalid_argument& e) {
      EXPECT_EQ(std::string(e.what()).rfind(path_ + ": ", 0), 0u) << e.what();
      return e.what();
    }
    ADD_FAILURE() << "accepted " << json;
    return "";
  }

  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("kvlab-geometry-" + std::to_string(getpid()) + ".json"))
          .string();
};

TEST_F(GeometryFile, HeadDimIsDividedOutWhereItIsNotStated) {
  const Geometry g = read(R"({"num_hidden_layers": 2, "num_attention_heads": 8, "hidden_size": 512})");
  EXPECT_EQ(g.layers, 2);
  EXPECT_EQ(g.q_heads, 8);
  EXPECT_EQ(g.kv_heads, 8);  // no num_key_value_heads: every head has its own
  EXPECT_EQ(g.head_dim, 64);
}

TEST_F(GeometryFile, AStatedHeadDimIsWhatCounts) {
  const Geometry g = read(
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
  const Geometry g = read(R"({"num_attention_heads": 99, "text_config":
      {"num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 32}})");
  EXPECT_EQ(g.layers, 3);
  EXPECT_EQ(g.q_heads, 4);
  EXPECT_EQ(g.head_dim, 8);
}

TEST_F(GeometryFile, EveryMistakeIsNamed) {
  const auto contains = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  for (const char* text : {"", "{", "[]", "3", "\xff"}) contains(refusal(text), "not a JSON object");
  contains(refusal("{}"), "'num_hidden_layers' is missing");
  contains(refusal(R"({"num_hidden_layers": "2"})"), "must be a positive integer, not \"2\"");
  contains(refusal(R"({"num_hidden_layers": 0})"), "must be a positive integer, not 0");
  contains(refusal(R"({"num_hidden_layers": -1})"), "must be a positive integer, not -1");
  contains(refusal(R"({"num_hidden_layers": 18446744073709551615})"), "must be a positive integer");
  contains(refusal(R"({"num_hidden_layers": 1, "num_attention_heads": 4})"), "'hidden_size' is missing");
  contains(refusal(R"({"num_hidden_layers": 1, "num_attention_heads": 4, "hidden_size": 2})"),
           "hidden_size (2) must be a multiple of num_attention_heads (4)");
  contains(refusal(R"({"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 3,
                       "head_dim": 8})"),
           "num_attention_heads (4) must be a multiple of num_key_value_heads (3)");
}

TEST(Geometry, PresetsAreThePublishedModels) {
  const Geometry llama = preset_geometry("llama-3-8b"), mistral = preset_geometry("mistral-7b");
  for (const Geometry& g : {llama, mistral}) {
    EXPECT_EQ(g.layers, 32);
    EXPECT_EQ(g.q_heads, 32);
    EXPECT_EQ(g.kv_heads, 8);
    EXPECT_EQ(g.head_dim, 128);
  }
  EXPECT_EQ(preset_geometry("llama-2-7b").kv_heads, 32);
  EXPECT_EQ(preset_geometry("tinyllama-1.1b").head_dim, 64);
  for (const char* name : {"gpt-9", "", "../ci", "/etc/passwd"}) {
    EXPECT_THROW(preset_geometry(name), std::invalid_argument) << name;
  }
}

}  // namespace
}  // namespace kv
