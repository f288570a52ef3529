// What experiments say of a GPU's times, on the shim, where each launch takes a microsecond of the GPU's own time.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "harness/experiments/driver.h"
#include "harness/experiments/list.h"
#include "harness/experiments/plan.h"
#include "tests/kernels/cuda/simt_gpu.h"

namespace kv {
namespace {

// The rows of a config's sweep points on the shim, and what of its samples a test wants to know.
struct Measured {
  explicit Measured(const std::string& toml) {
    const std::filesystem::path folder = testing::TempDir() + "cuda_times_" + std::to_string(::getpid());
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "run.toml") << toml;
    const config::Config config = experiments::load_config((folder / "run.toml").string(), {});
    auto shim = std::make_unique<test::SimtGpu>();
    gpu = shim.get();
    context.emplace(std::move(shim));
    const experiments::Sweep sweep = experiments::plan_sweep(config, *context);
    results::ResultsFolder results(folder / "out", "", false);
    for (const measure::SweepPoint& point : sweep.points) {
      const measure::RunControl control{.stop = [] { return false; }};
      for (auto& row : experiments::experiment_of(point).run(point, control, results)) rows.push_back(row);
    }
    std::ifstream file(folder / "out" / "samples.csv");
    std::stringstream text;
    text << file.rdbuf();
    samples = text.str();
    std::filesystem::remove_all(folder);
  }
  test::SimtGpu* gpu;
  std::optional<memory::RunContext> context;
  std::vector<results::CellResult> rows;
  std::string samples;
};

constexpr const char* kModel = "[model]\nq_heads = 2\nkv_heads = 1\nhead_dim = 64\nlayers = 2\n";

TEST(CudaTimes, BandwidthIsOfTheGpusOwnTimeOverColdRows) {
  const Measured run(std::string("title = \"t\"\nexperiment = \"decode\"\nthreads = 1\n") + kModel +
                     "[sweep]\nvariants = [\"contiguous/f16\", \"paged/q8_0\"]\nseq_len = 40\n"
                     "[measure]\nrepetitions = 2\nsteps = 2\ncold_steps = 3\nretries = 0\naa_test = false\n");
  ASSERT_EQ(run.rows.size(), 2u);
  for (const results::CellResult& row : run.rows) {
    ASSERT_EQ(row.status, results::Status::kOk) << row.variant << ": " << row.reason;
    EXPECT_EQ(row.device, "cuda");
    EXPECT_TRUE(row.step_p50_us);
    EXPECT_FALSE(row.read_gbps) << "the host's time is no bandwidth";
    EXPECT_FALSE(row.cold_attend_p50_us);
    // Two layers, one launch each.
    ASSERT_TRUE(row.gpu_p50_us);
    EXPECT_EQ(*row.gpu_p50_us, 2.0);
    ASSERT_TRUE(row.cold_read_gbps && row.cold_ceiling_gbps && row.cold_ceiling_share);
    EXPECT_EQ(*row.cold_ceiling_gbps, 16 * 4096 * 1e-3);  // a launch reads 16 times the L2
    EXPECT_DOUBLE_EQ(*row.cold_ceiling_share, *row.cold_read_gbps / *row.cold_ceiling_gbps);
    ASSERT_TRUE(row.gpu_sm_mhz_least && row.gpu_sm_mhz_most);
    EXPECT_GE(*row.gpu_sm_mhz_least, 1000);
    EXPECT_LE(*row.gpu_sm_mhz_least, *row.gpu_sm_mhz_most);
  }
  const double bytes = 2.0 * 40 * 64 * 2 * 2;  // layers, tokens, numbers, K and V, f16
  EXPECT_DOUBLE_EQ(*run.rows.front().cold_read_gbps, bytes / 2.0 * 1e-3);
  EXPECT_NE(run.samples.find(",cold,,,,,,,,2"), std::string::npos) << run.samples;
}

TEST(CudaTimes, WithoutColdStepsThereIsNoBandwidth) {
  const Measured run(std::string("title = \"t\"\nexperiment = \"decode\"\nthreads = 1\n") + kModel +
                     "[sweep]\nvariants = [\"contiguous/f16\"]\nseq_len = 40\n"
                     "[measure]\nrepetitions = 2\nsteps = 2\ncold_steps = 0\nretries = 0\naa_test = false\n");
  ASSERT_EQ(run.rows.size(), 1u);
  const results::CellResult& row = run.rows.front();
  EXPECT_EQ(row.status, results::Status::kOk) << row.reason;
  EXPECT_FALSE(row.read_gbps || row.cold_read_gbps || row.gpu_p50_us || row.cold_ceiling_gbps);
}

TEST(CudaTimes, PrefillRefusesTheArmsThatTheCpuComputes) {
  const Measured run(std::string("title = \"t\"\nexperiment = \"prefill\"\nthreads = 1\n") + kModel +
                     "[sweep]\nvariants = [\"contiguous/f16\"]\nseq_len = 40\nchunk = 16\n"
                     "[measure]\nrepetitions = 2\nretries = 0\naa_test = false\n");
  ASSERT_EQ(run.rows.size(), 4u);
  for (const results::CellResult& row : run.rows) {
    const bool by_cpu = row.arm.starts_with("materialised");
    EXPECT_EQ(row.status, by_cpu ? results::Status::kUnsupported : results::Status::kOk) << row.arm;
    EXPECT_EQ(row.reason.empty(), !by_cpu) << row.reason;
    EXPECT_EQ(row.prefill_p50_us.has_value(), !by_cpu);
  }
}

}  // namespace
}  // namespace kv
