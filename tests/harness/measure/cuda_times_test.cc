// A GPU's times in results, on the shim, where each launch takes a microsecond of the GPU's own time.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "harness/experiments/driver.h"
#include "harness/experiments/list.h"
#include "harness/experiments/plan.h"
#include "harness/experiments/written_columns.h"
#include "harness/measure/cell.h"
#include "harness/measure/time_columns.h"
#include "harness/results/cell_columns.h"
#include "tests/harness/model/family_cases.h"
#include "tests/kernels/cuda/simt_gpu.h"

namespace kv {
namespace {

// Runs a config's sweep points on the shim; has their rows and samples.csv.
struct Measured {
  explicit Measured(const std::string& toml) {
    const test::TempFolder folder;
    std::ofstream(folder / "run.toml") << toml;
    const config::Config config = experiments::load_config((folder / "run.toml").string(), {});
    auto shim = std::make_unique<test::SimtGpu>();
    gpu = shim.get();
    context.emplace(std::move(shim));
    const experiments::Sweep sweep = experiments::plan_sweep(config, *context);
    results::ResultsFolder results(folder / "out", "", experiments::layout_of(config), false);
    for (const measure::SweepPoint& point : sweep.points) {
      const measure::RunControl control{.stop = [] { return false; }};
      for (auto& row : experiments::experiment_of(point).run(point, control, results)) rows.push_back(row);
    }
    std::ifstream file(folder / "out" / "samples.csv");
    std::stringstream text;
    text << file.rdbuf();
    samples = text.str();
  }
  test::SimtGpu* gpu;
  std::optional<memory::RunContext> context;
  std::vector<results::Row> rows;
  std::string samples;
};

constexpr const char* kModel = "[model]\nq_heads = 2\nkv_heads = 1\nhead_dim = 64\nlayers = 2\n";

TEST(CudaTimes, BandwidthIsOfTheGpusOwnTimeOverColdRows) {
  const Measured run(std::string("title = \"t\"\nexperiment = \"decode\"\nthreads = 1\n") + kModel +
                     "[sweep]\nvariants = [\"contiguous/f16\", \"paged/q8_0\"]\nseq_len = 40\n"
                     "[measure]\nrepetitions = 2\nsteps = 2\ncold_steps = 3\nretries = 0\naa_test = false\n");
  ASSERT_EQ(run.rows.size(), 2u);
  for (const results::Row& row : run.rows) {
    ASSERT_EQ(row[results::kStatus], results::Status::kOk)
        << row[results::kVariant] << ": " << row[results::kReason];
    EXPECT_EQ(row[results::kDevice], "cuda");
    EXPECT_TRUE(row[measure::kStepP50Us]);
    EXPECT_FALSE(row[measure::kReadGbps]) << "the host's time is no bandwidth";
    EXPECT_FALSE(row[measure::kColdAttendP50Us]);
    // Two layers, one launch each.
    ASSERT_TRUE(row[measure::kGpuP50Us]);
    EXPECT_EQ(*row[measure::kGpuP50Us], 2.0);
    ASSERT_TRUE(row[measure::kColdReadGbps] && row[measure::kColdCeilingGbps] &&
                row[measure::kColdCeilingShare]);
    EXPECT_EQ(*row[measure::kColdCeilingGbps], 16 * 4096 * 1e-3);  // a launch reads 16 times the L2
    EXPECT_DOUBLE_EQ(*row[measure::kColdCeilingShare],
                     *row[measure::kColdReadGbps] / *row[measure::kColdCeilingGbps]);
    ASSERT_TRUE(row[measure::kGpuSmMhzLeast] && row[measure::kGpuSmMhzMost]);
    EXPECT_GE(*row[measure::kGpuSmMhzLeast], 1000);
    EXPECT_LE(*row[measure::kGpuSmMhzLeast], *row[measure::kGpuSmMhzMost]);
  }
  const double bytes = 2.0 * 40 * 64 * 2 * 2;  // layers, tokens, numbers, K and V, f16
  EXPECT_DOUBLE_EQ(*run.rows.front()[measure::kColdReadGbps], bytes / 2.0 * 1e-3);
  EXPECT_NE(run.samples.find(",cold,,,,,,,,2"), std::string::npos) << run.samples;
}

TEST(CudaTimes, WithoutColdStepsThereIsNoBandwidth) {
  const Measured run(std::string("title = \"t\"\nexperiment = \"decode\"\nthreads = 1\n") + kModel +
                     "[sweep]\nvariants = [\"contiguous/f16\"]\nseq_len = 40\n"
                     "[measure]\nrepetitions = 2\nsteps = 2\ncold_steps = 0\nretries = 0\naa_test = false\n");
  ASSERT_EQ(run.rows.size(), 1u);
  const results::Row& row = run.rows.front();
  EXPECT_EQ(row[results::kStatus], results::Status::kOk) << row[results::kReason];
  EXPECT_FALSE(row[measure::kReadGbps] || row[measure::kColdReadGbps] || row[measure::kGpuP50Us] ||
               row[measure::kColdCeilingGbps]);
}

TEST(CudaTimes, APeersAttentionIsTimedByTheGpusClock) {
  const test::TempFolder home;
  const std::filesystem::path source = KVLAB_SOURCE_DIR, peers = home / "harness/peers";
  std::filesystem::create_directories(peers);
  std::filesystem::copy(source / "harness" / "peers" / "serve.py", peers);
  std::filesystem::copy(source / "tests" / "harness" / "cli" / "fake_peer.py", peers / "fake.py");
  std::ofstream(peers / "host.py") << "# /// script\n# [tool.kvlab.formats]\n"
                                      "# f32 = { stored = \"f32\", tolerance = 1e-5 }\n# ///\nNEEDS = []\n";
  setenv("KVLAB_HOME", home.path().c_str(), 1);
  // The fake engine computes with NumPy.
  setenv("KVLAB_PEERS_PYTHON", KVLAB_SOURCE_DIR "/.venv/bin/python", 1);
  const Measured run(
      "title = \"t\"\nexperiment = \"decode\"\nthreads = 1\n"
      "[model]\nq_heads = 2\nkv_heads = 1\nhead_dim = 64\n"
      "[sweep]\nvariants = [\"contiguous\"]\npeers = [\"fake/f32\", \"host\"]\nseq_len = 40\n"
      "[measure]\nrepetitions = 2\nsteps = 2\ncold_steps = 3\nretries = 0\naa_test = false\n");
  unsetenv("KVLAB_HOME");
  ASSERT_EQ(run.rows.size(), 3u);
  const results::Row& row = run.rows[1];
  ASSERT_EQ(row[results::kStatus], results::Status::kOk) << row[results::kReason];
  ASSERT_TRUE(row[measure::kGpuP50Us] && row[measure::kPeerColdRatioP50] && row[measure::kStepP50Us] &&
              row[measure::kPeerRatioP50]);
  EXPECT_DOUBLE_EQ(*row[measure::kGpuP50Us], 250.0);
  EXPECT_DOUBLE_EQ(*row[measure::kPeerColdRatioP50], 250.0);  // the cache's launch takes 1 us
  EXPECT_FALSE(row[measure::kColdAttendP50Us] || row[measure::kColdReadGbps] ||
               row[measure::kColdCeilingGbps]);
  EXPECT_EQ(run.rows[2][results::kStatus], results::Status::kUnsupported);
  EXPECT_EQ(run.rows[2][results::kReason], "this peer runs only on cpu");
}

// A cell that fails is one row; a GPU that takes no more work would fail all that come.
TEST(CudaTimes, ALostGpuEndsTheRun) {
  measure::Cell cell;
  measure::attempt(cell, [] { throw std::runtime_error("GPU: out of resources"); });
  EXPECT_EQ(cell.result[results::kStatus], results::Status::kFailed);
  EXPECT_THROW(measure::attempt(cell, [] { throw cuda::GpuLost("GPU: an illegal memory access"); }),
               cuda::GpuLost);
}

TEST(CudaTimes, PrefillRefusesTheArmsThatTheCpuComputes) {
  const Measured run(std::string("title = \"t\"\nexperiment = \"prefill\"\nthreads = 1\n") + kModel +
                     "[sweep]\nvariants = [\"contiguous/f16\"]\nseq_len = 40\nchunk = 16\n"
                     "[measure]\nrepetitions = 2\nretries = 0\naa_test = false\n");
  ASSERT_EQ(run.rows.size(), 4u);
  for (const results::Row& row : run.rows) {
    const bool by_cpu = row[results::kArm].starts_with("materialised");
    EXPECT_EQ(row[results::kStatus], by_cpu ? results::Status::kUnsupported : results::Status::kOk)
        << row[results::kArm];
    EXPECT_EQ(row[results::kReason].empty(), !by_cpu) << row[results::kReason];
    EXPECT_EQ(row[measure::kPrefillP50Us].has_value(), !by_cpu);
  }
}

TEST(CudaTimes, ModelsWhoseSoftmaxHasTermsThatAGpuLacksAreRefused) {
  for (const auto& [family, lacking] :
       {std::pair{"gpt_oss", "sink logits"}, {"gemma2", "soft-capping"}, {"qwen3", ""}}) {
    const test::TempFolder folder;
    const std::filesystem::path geometry = folder.path() / "config.json";
    std::ofstream(geometry) << test::family_cases().at(family).at("config");
    const Measured run(
        "experiment = \"model\"\nthreads = 1\n[workload]\nweights = \"random\"\n[model]\nconfig = \"" +
        geometry.string() +
        "\"\n[measure]\ncontext = \"synthetic\"\nrepetitions = 2\nsteps = 1\nretries = 0\n"
        "aa_test = false\n[sweep]\nvariants = [\"contiguous/f16\"]\nseq_len = 20\n");
    ASSERT_EQ(run.rows.size(), 1u);
    const results::Row& row = run.rows.front();
    const bool refused = *lacking != 0;
    EXPECT_EQ(row[results::kStatus], refused ? results::Status::kUnsupported : results::Status::kOk)
        << family;
    EXPECT_EQ(row[results::kReason].find(lacking) != std::string::npos &&
                  row[results::kReason].ends_with("run it with --device cpu"),
              refused)
        << row[results::kReason];
  }
}

}  // namespace
}  // namespace kv
