// Configs: what the keys mean, who overrides whom, and that the config as run says all of it.
// refusals.toml has what is refused.
#include "harness/config/config.h"
#include "harness/config/key.h"
#include "harness/experiments/growth/axes.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

#include "harness/config/braces.h"
#include "harness/experiments/list.h"
#include "tests/message_of.h"
#include "tests/temp.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

class ConfigFile : public testing::Test {
 protected:
  config::Config load(const std::string& text, const config::Overrides& overrides = {}) const {
    std::ofstream(path_) << text;
    return experiments::load_config(path_, overrides);
  }
  const test::TempFolder folder_;
  const std::string path_ = folder_ / "config.toml";
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
  const config::Config c = load(kText);
  ASSERT_EQ(c.experiments.size(), 2u);
  const config::ExperimentConfig &decode = c.experiments[0], &growth = c.experiments[1];
  EXPECT_EQ(decode.kind, "decode");
  EXPECT_EQ(decode.settings[config::kSeqLen], (std::vector<int64_t>{16, 512}));  // shortest first
  EXPECT_EQ(decode.measure.repetitions, 9);
  EXPECT_TRUE(decode.settings[experiments::kAttendKey]);
  EXPECT_EQ(growth.settings[config::kSeqLen], (std::vector<int64_t>{128}));
  EXPECT_EQ(growth.axes.variants, decode.axes.variants);
  EXPECT_EQ(growth.measure.repetitions, 3);
  EXPECT_FALSE(growth.settings[experiments::kAttendKey]);
  EXPECT_EQ(growth.settings[config::kBatch], (std::vector<int64_t>{1}));
  EXPECT_EQ(growth.axes.workload, (std::vector<std::string>{"gaussian"}));
}

TEST_F(ConfigFile, SeveralTablesOfAnExperimentAreAsManySweeps) {
  const config::Config c = load(kText +
                                "[[decode]]\nkv_heads = [2, 8]\n"
                                "[[decode]]\nseq_len = 4096\nvariants = 'contiguous/f16'\nsteps = 2\n");
  ASSERT_EQ(c.experiments.size(), 3u);
  const config::ExperimentConfig &shapes = c.experiments[0], &longer = c.experiments[1];
  EXPECT_EQ(shapes.kind, "decode");
  EXPECT_EQ(shapes.axes.kv_heads, (std::vector<int>{2, 8}));
  EXPECT_EQ(shapes.settings[config::kSeqLen], (std::vector<int64_t>{16, 512}));
  EXPECT_EQ(longer.kind, "decode");
  EXPECT_TRUE(longer.axes.kv_heads.empty());
  EXPECT_EQ(longer.settings[config::kSeqLen], (std::vector<int64_t>{4096}));
  EXPECT_EQ(longer.axes.variants.size(), 1u);
  EXPECT_EQ(longer.measure.steps, 2);
  EXPECT_EQ(longer.measure.repetitions, 9);
  EXPECT_EQ(c.experiments[2].kind, "growth");
  EXPECT_EQ(load(c.as_run).as_run, c.as_run);
}

TEST_F(ConfigFile, SetTakesTomlOrElseText) {
  config::Overrides o;
  o.set = {"sweep.seq_len=[3, 5]", "sweep.variants=concat", "title=a b", "decode.repetitions=2", "seed=7"};
  const config::Config c = load(kText, o);
  EXPECT_EQ(c.experiments[0].settings[config::kSeqLen], (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(c.experiments[0].axes.variants[0].print(), "concat");
  EXPECT_EQ(c.experiments[0].measure.repetitions, 2);
  EXPECT_EQ(c.title, "a b");
  EXPECT_EQ(c.seed, 7u);
}

TEST_F(ConfigFile, OptionsWinOverTheFileAndOverSet) {
  config::Overrides o;
  o.set = {"seed=7", "threads=3"};
  o.seed = 8;
  o.threads = 2;
  o.isa = "scalar";
  const config::Config c = load(kText, o);
  EXPECT_EQ(c.seed, 8u);
  EXPECT_EQ(c.threads, 2);
  EXPECT_EQ(c.isa, "scalar");
}

TEST_F(ConfigFile, ArithmeticIsOfTheVariantsThatCanChoose) {
  config::Overrides o;
  o.set = {"sweep.variants=['contiguous/f16','contiguous/q8_0','paged/q4_0']",
           "sweep.baseline='contiguous/q8_0'"};
  o.arithmetic = "int8";
  const config::Config c = load(kText, o);
  std::vector<std::string> names;
  for (const LayerSpecs& spec : c.experiments.front().axes.variants) names.push_back(spec.print());
  EXPECT_EQ(names, (std::vector<std::string>{"contiguous/q8_0(arithmetic=int8)", "contiguous/f16",
                                             "paged/q4_0(arithmetic=int8)"}));
  EXPECT_EQ(load(c.as_run).experiments.front().axes.variants, c.experiments.front().axes.variants);
}

TEST_F(ConfigFile, TheConfigAsRunIsTheSameConfig) {
  config::Overrides o;
  o.set = {"sweep.seq_len=[3, 5]", "measure.memory_share=0.5"};
  o.seed = 8;
  const config::Config c = load(kText, o);
  const config::Config again = load(c.as_run);
  EXPECT_EQ(again.as_run, c.as_run);
  EXPECT_EQ(again.name, c.name);
  EXPECT_EQ(again.seed, 8u);
  EXPECT_EQ(again.experiments[0].settings[config::kSeqLen], c.experiments[0].settings[config::kSeqLen]);
  EXPECT_EQ(again.experiments[0].measure.memory_share, 0.5);
}

TEST_F(ConfigFile, APresetMeasuresOneLayerUnlessToldOtherwise) {
  const std::string rest = "\n[sweep]\nvariants = \"concat\"\nseq_len = 8\n";
  config::Config c = load("experiment = \"decode\"\n[model]\npreset = \"llama-3-8b\"" + rest);
  EXPECT_EQ(c.geometry.layers, 1);
  EXPECT_EQ(c.geometry.kv_heads, 8);
  c = load("experiment = \"decode\"\n[model]\npreset = \"llama-3-8b\"\nlayers = 4" + rest);
  EXPECT_EQ(c.geometry.layers, 4);
}

// The files need only be there; nobody opens them here.
TEST_F(ConfigFile, AModelOnTheCommandLineIsWhatIsMeasured) {
  config::Overrides o;
  o.workload = {.family = "", .dump = "", .model = path_, .tokenizer = path_, .texts = {path_}};
  const config::Config c = load(kText + "workload = \"sinks\"\n", o);
  for (const config::ExperimentConfig& e : c.experiments)
    EXPECT_EQ(e.axes.workload, (std::vector<std::string>{"model"}));
  EXPECT_EQ(c.workload.model, path_);
  EXPECT_EQ(load(c.as_run).experiments[1].axes.workload, (std::vector<std::string>{"model"}));
  const config::Config several =
      load(kText + "[[decode]]\nworkload = 'sinks'\n[[decode]]\nworkload = 'local'\n", o);
  for (const config::ExperimentConfig& e : several.experiments)
    EXPECT_EQ(e.axes.workload, (std::vector<std::string>{"model"}));
}

TEST_F(ConfigFile, PathsMeanTheSameFromEveryFolder) {
  std::ofstream(path_) << "";
  const fs::path before = fs::current_path();
  fs::current_path(fs::path(path_).parent_path());
  const config::Config c =
      load(kText + "[workload]\ndump = \"" + fs::path(path_).filename().string() + "\"\n");
  fs::current_path(before);
  EXPECT_EQ(fs::path(c.workload.dump), fs::path(path_));
}

TEST_F(ConfigFile, TheAATestHasTwoSpellings) {
  EXPECT_TRUE(load(kText).experiments[0].measure.aa_test);
  EXPECT_FALSE(load(kText + "aa_test = false\n").experiments[1].measure.aa_test);
  EXPECT_FALSE(load(kText + "null_ab = false\n").experiments[1].measure.aa_test);
}

// Both take the same axes.
TEST_F(ConfigFile, SweepAndAnExperimentsTableTakeTheSameAxes) {
  for (const char* axis : {"kv_heads = [2, 4]", "head_dim = [32, 64]", "threads = [1, 2]", "batch = [1, 3]",
                           "seq_len = [3, 5]", "budget = [8, 16]", "workload = ['local', 'sinks']"}) {
    const std::string before = kText.substr(0, kText.find("seq_len = [512, 16]")),
                      after = kText.substr(kText.find("[measure]"));
    const config::Config shared = load(before + "seq_len = 9\n" + after + "[decode]\n" + axis + "\n"),
                         own =
                             load(before + (std::string(axis).starts_with("seq_len") ? "" : "seq_len = 9\n") +
                                  axis + "\n" + after);
    const auto axes_of = [](const config::ExperimentConfig& c) {
      const config::Axes& a = c.axes;
      return std::tuple(a.kv_heads, a.head_dim, a.threads, c.settings[config::kBatch],
                        c.settings[config::kSeqLen], a.budget, a.workload);
    };
    EXPECT_EQ(axes_of(shared.experiments[0]), axes_of(own.experiments[0])) << axis;
  }
}

TEST_F(ConfigFile, PlaceholdersAreTheBudgetAndItsParts) {
  EXPECT_EQ(config::substitute_budget("ring(window={budget-4},sinks=4)", 64), "ring(window=60,sinks=4)");
  EXPECT_EQ(config::substitute_budget("h2o(heavy={budget/2},recent={budget/4})", 64),
            "h2o(heavy=32,recent=16)");
  EXPECT_EQ(config::substitute_budget("contiguous/{budget}{budget}", 7), "contiguous/77");
}

// Experiments compare with their first variant, so the baseline is put there.
TEST_F(ConfigFile, TheBaselineComesFirst) {
  const auto first = [&](const std::string& more, size_t experiment) {
    return load(kText + more).experiments[experiment].axes.variants.front().print();
  };
  EXPECT_EQ(first("", 0), "contiguous");
  EXPECT_EQ(
      first("[decode]\nvariants = 'paged(block={1,8})'\nbaseline = 'paged(block=8,order=sequential)'\n", 0),
      "paged(block=8)");
  const config::Axes axes =
      load(kText + "[decode]\nvariants = ['concat', 'doubling', 'paged']\nbaseline = 'paged'\n")
          .experiments[0]
          .axes;
  EXPECT_EQ(axes.series, (std::vector<std::string>{"paged", "concat", "doubling"}));
}

TEST_F(ConfigFile, ListsInBracesAndBudgetsAreDistinguished) {
  const config::Axes axes =
      load(kText + "[decode]\nvariants = 'contiguous/{f16,q8_0}/ring(window={budget})'\n" +
           "budget = [8, 16]\n")
          .experiments[0]
          .axes;
  std::vector<std::string> variants;
  for (const LayerSpecs& spec : axes.variants) variants.push_back(spec.print());
  EXPECT_EQ(variants,
            (std::vector<std::string>{"contiguous/f16/ring(window=8)", "contiguous/f16/ring(window=16)",
                                      "contiguous/q8_0/ring(window=8)", "contiguous/q8_0/ring(window=16)"}));
  EXPECT_EQ(axes.series[0], "contiguous/f16/ring(window={budget})");
  EXPECT_EQ(axes.series[3], "contiguous/q8_0/ring(window={budget})");
}

TEST_F(ConfigFile, TokensMayBeWrittenInK) {
  const auto lengths = [&](const std::string& set) {
    config::Overrides o;
    o.set = {set};
    return load(kText, o).experiments[0].settings[config::kSeqLen];
  };
  const std::vector<int64_t> both{4096, 131072};
  EXPECT_EQ(lengths("sweep.seq_len=[4K,128K]"), both);
  EXPECT_EQ(lengths("sweep.seq_len=[4096, \"128K\"]"), both);
  EXPECT_EQ(lengths("sweep.seq_len=1M"), std::vector<int64_t>{1 << 20});
}

}  // namespace
}  // namespace kv
