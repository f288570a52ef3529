// Configs: what the keys mean, who overrides whom, and that the config as run says all of it.
// What is refused is tested over the program, in cli_test.py.
#include "harness/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace kv {
namespace {

namespace fs = std::filesystem;

class ConfigFile : public testing::Test {
 protected:
  void TearDown() override { fs::remove(path_); }
  Config load(const std::string& text, const Overrides& overrides = {}) const {
    std::ofstream(path_) << text;
    return load_config(path_, overrides);
  }
  const std::string path_ =
      (fs::temp_directory_path() / ("kvlab-config-" + std::to_string(getpid()) + ".toml")).string();
};

const std::string kText = R"(
experiment = ["decode", "growth"]
[model]
q_heads = 8
kv_heads = 2
head_dim = 64
[sweep]
variants = ["contiguous", "doubling(read=copy)/f16"]
seq_len = [512, 16]
[measure]
repetitions = 9
[growth]
seq_len = 128
repetitions = 3
attend = false
)";

TEST_F(ConfigFile, AnExperimentsOwnTableOverridesForItAlone) {
  const Config c = load(kText);
  ASSERT_EQ(c.experiments.size(), 2u);
  const ExperimentConfig &decode = c.experiments[0], &growth = c.experiments[1];
  EXPECT_EQ(decode.kind, "decode");
  EXPECT_EQ(decode.axes.seq_len, (std::vector<int64_t>{16, 512}));  // shortest first
  EXPECT_EQ(decode.measure.repetitions, 9);
  EXPECT_TRUE(decode.measure.attend);
  EXPECT_EQ(growth.axes.seq_len, (std::vector<int64_t>{128}));
  EXPECT_EQ(growth.axes.variants, decode.axes.variants);
  EXPECT_EQ(growth.measure.repetitions, 3);
  EXPECT_FALSE(growth.measure.attend);
  EXPECT_EQ(growth.axes.batch, (std::vector<int>{1}));
  EXPECT_EQ(growth.axes.workload, (std::vector<std::string>{"gaussian"}));
}

TEST_F(ConfigFile, SeveralTablesOfAnExperimentAreAsManySweeps) {
  const Config c = load(kText +
                        "[[decode]]\nkv_heads = [2, 8]\n"
                        "[[decode]]\nseq_len = 4096\nvariants = 'contiguous/f16'\nsteps = 2\n");
  ASSERT_EQ(c.experiments.size(), 3u);
  const ExperimentConfig &shapes = c.experiments[0], &longer = c.experiments[1];
  EXPECT_EQ(shapes.kind, "decode");
  EXPECT_EQ(shapes.axes.kv_heads, (std::vector<int>{2, 8}));
  EXPECT_EQ(shapes.axes.seq_len, (std::vector<int64_t>{16, 512}));
  EXPECT_EQ(longer.kind, "decode");
  EXPECT_TRUE(longer.axes.kv_heads.empty());
  EXPECT_EQ(longer.axes.seq_len, (std::vector<int64_t>{4096}));
  EXPECT_EQ(longer.axes.variants.size(), 1u);
  EXPECT_EQ(longer.measure.steps, 2);
  EXPECT_EQ(longer.measure.repetitions, 9);
  EXPECT_EQ(c.experiments[2].kind, "growth");
  EXPECT_EQ(load(c.as_run).as_run, c.as_run);
}

TEST_F(ConfigFile, SetTakesTomlOrElseText) {
  Overrides o;
  o.set = {"sweep.seq_len=[3, 5]", "sweep.variants=concat", "title=a b", "decode.repetitions=2", "seed=7"};
  const Config c = load(kText, o);
  EXPECT_EQ(c.experiments[0].axes.seq_len, (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(c.experiments[0].axes.variants[0].print(), "concat");
  EXPECT_EQ(c.experiments[0].measure.repetitions, 2);
  EXPECT_EQ(c.title, "a b");
  EXPECT_EQ(c.seed, 7u);
}

TEST_F(ConfigFile, OptionsWinOverTheFileAndOverSet) {
  Overrides o;
  o.set = {"seed=7", "threads=3"};
  o.seed = 8;
  o.threads = 2;
  o.isa = "scalar";
  const Config c = load(kText, o);
  EXPECT_EQ(c.seed, 8u);
  EXPECT_EQ(c.threads, 2);
  EXPECT_EQ(c.isa, "scalar");
}

TEST_F(ConfigFile, TheConfigAsRunIsTheSameConfig) {
  Overrides o;
  o.set = {"sweep.seq_len=[3, 5]", "measure.memory_share=0.5"};
  o.seed = 8;
  const Config c = load(kText, o);
  const Config again = load(c.as_run);
  EXPECT_EQ(again.as_run, c.as_run);
  EXPECT_EQ(again.name, c.name);
  EXPECT_EQ(again.seed, 8u);
  EXPECT_EQ(again.experiments[0].axes.seq_len, c.experiments[0].axes.seq_len);
  EXPECT_EQ(again.experiments[0].measure.memory_share, 0.5);
}

TEST_F(ConfigFile, APresetMeasuresOneLayerUnlessToldOtherwise) {
  const std::string rest = "\n[sweep]\nvariants = \"concat\"\nseq_len = 8\n";
  Config c = load("experiment = \"decode\"\n[model]\npreset = \"llama-3-8b\"" + rest);
  EXPECT_EQ(c.geometry.layers, 1);
  EXPECT_EQ(c.geometry.kv_heads, 8);
  c = load("experiment = \"decode\"\n[model]\npreset = \"llama-3-8b\"\nlayers = 4" + rest);
  EXPECT_EQ(c.geometry.layers, 4);
}

// The files need only be there; nobody opens them here.
TEST_F(ConfigFile, AModelOnTheCommandLineIsWhatIsMeasured) {
  Overrides o;
  o.workload = {.family = "", .dump = "", .model = path_, .text = path_, .tokenizer = path_};
  const Config c = load(kText + "workload = \"sinks\"\n", o);
  for (const ExperimentConfig& e : c.experiments)
    EXPECT_EQ(e.axes.workload, (std::vector<std::string>{"model"}));
  EXPECT_EQ(c.workload.model, path_);
  EXPECT_EQ(load(c.as_run).experiments[1].axes.workload, (std::vector<std::string>{"model"}));
  const Config several = load(kText + "[[decode]]\nworkload = 'sinks'\n[[decode]]\nworkload = 'local'\n", o);
  for (const ExperimentConfig& e : several.experiments)
    EXPECT_EQ(e.axes.workload, (std::vector<std::string>{"model"}));
}

TEST_F(ConfigFile, PathsMeanTheSameFromEveryFolder) {
  std::ofstream(path_) << "";
  const fs::path before = fs::current_path();
  fs::current_path(fs::path(path_).parent_path());
  const Config c = load(kText + "[workload]\ndump = \"" + fs::path(path_).filename().string() + "\"\n");
  fs::current_path(before);
  EXPECT_EQ(fs::path(c.workload.dump), fs::path(path_));
}

}  // namespace
}  // namespace kv
