// Lines through cells: found again where they lie on one, told where they do not, and kept apart from what is stated.
#include "harness/planner/measured_steps.h"
#include "harness/measure/time_columns.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "harness/planner/step_time.h"
#include "harness/results/cell_columns.h"

namespace kv::planner {
namespace {

constexpr double kOnce = 3e-4, kEach = 2e-5, kRow = 5e-9, kPromptToken = 4e-6, kPromptRow = 3e-9;
const char* const kVariant = "paged(block=16)/f16/full";

config::Geometry four_layers() {
  config::Geometry g;
  g.layers = g.model_layers = 4;
  g.q_heads = 8;
  g.kv_heads = 2;
  g.head_dim = 64;
  g.parameters = 1000;
  g.kinds.resize(4);
  return g;
}

// Steps of `layers` layers, on a line but for a relative error of every other cell.
std::vector<results::Row> cells(bool whole, int layers, double error = 0.0) {
  std::vector<results::Row> all;
  for (const int batch : {1, 4, 16}) {
    for (const int64_t kept : {256, 4096}) {
      results::Row& cell = all.emplace_back();
      if (whole) cell[measure::kProjectionsP50Us] = 1.0;
      cell[results::kVariant] = kVariant;
      cell[results::kStatus] = results::Status::kOk;
      cell[results::kQHeads] = 8;
      cell[results::kKvHeads] = 2;
      cell[results::kHeadDim] = 64;
      cell[results::kLayers] = layers;
      cell[results::kBatch] = batch;
      cell[results::kKeptTokens] = kept;
      const double off = all.size() % 2 == 0 ? 1.0 + error : 1.0;
      cell[measure::kStepP50Us] =
          1e6 * layers * (kOnce + kEach * batch + kRow * static_cast<double>(batch * kept)) * off;
    }
  }
  return all;
}

// The same of a model that has read its prompts, of as many tokens as are kept.
std::vector<results::Row> cells_with_prompts() {
  std::vector<results::Row> all = cells(true, 4);
  for (results::Row& cell : all) {
    const auto tokens = static_cast<double>(*cell[results::kKeptTokens]),
               batch = static_cast<double>(*cell[results::kBatch]);
    const double seconds = batch * (kPromptToken * tokens + kPromptRow * tokens * (tokens + 1) / 2);
    cell[measure::kPrefillP50Us] = 1e6 * seconds;
    cell[measure::kPrefillTokensPerS] = batch * tokens / seconds;
  }
  return all;
}

MeasuredSteps steps_of(const std::vector<results::Row>& all) {
  return MeasuredSteps(all, four_layers(), kVariant, "run");
}

TEST(MeasuredSteps, FindTheLineAgain) {
  for (const int layers : {1, 2, 4}) {
    const MeasuredSteps steps = steps_of(cells(false, layers));
    EXPECT_FALSE(steps.whole_steps());
    EXPECT_FALSE(steps.has_prompts());
    EXPECT_LT(steps.residual(), 1e-9);
    const MeasuredSteps::Time time = steps.decode(7, 4.0 * 7 * 1000);
    EXPECT_NEAR(time.seconds, 4 * (kOnce + kEach * 7 + kRow * 7000), 1e-9);
    EXPECT_FALSE(time.beyond);
    EXPECT_EQ(steps.decode(0, 0.0).seconds, 0.0);
    EXPECT_FALSE(steps.decode(16, 4.0 * 16 * 4096).beyond);
    EXPECT_TRUE(steps.decode(17, 4.0 * 4096).beyond);
    EXPECT_TRUE(steps.decode(1, 4.0 * 16 * 4096 + 4).beyond);
    EXPECT_TRUE(steps.decode(1, 4.0 * 255).beyond);
  }
  const double residual = steps_of(cells(false, 1, 0.2)).residual();
  EXPECT_GT(residual, 0.03);
  EXPECT_LT(residual, 0.2);
}

TEST(MeasuredSteps, TakeAttentionColdWhereItWasMeasured) {
  std::vector<results::Row> all = cells(false, 1);
  for (results::Row& cell : all) {
    cell[measure::kAppendP50Us] = 10.0;
    cell[measure::kColdAttendP50Us] = 3.0 * *cell[measure::kStepP50Us];
  }
  EXPECT_NEAR(steps_of(all).decode(4, 4.0 * 4096).seconds,
              4 * (3.0 * (kOnce + kEach * 4 + kRow * 4096) + 1e-5), 1e-9);
}

TEST(MeasuredSteps, FindThePromptsLineToo) {
  const MeasuredSteps steps = steps_of(cells_with_prompts());
  ASSERT_TRUE(steps.whole_steps() && steps.has_prompts());
  EXPECT_LT(steps.residual(), 1e-6);
  // 1,000 tokens after 500 others.
  const double rows = 4.0 * 1000 * 1000.5;
  EXPECT_NEAR(steps.prompts(1000, rows, false).seconds, kPromptToken * 1000 + kPromptRow * rows / 4, 1e-9);
  EXPECT_FALSE(steps.prompts(1000, rows, false).beyond);
  EXPECT_TRUE(steps.prompts(255, rows, false).beyond);
  EXPECT_NEAR(steps.prompts(256, 4.0 * 256 * 128.5, true).seconds,
              std::max(4 * kOnce, kPromptToken * 256 + kPromptRow * 256 * 128.5), 1e-9)
      << "no step is shorter than an empty one";
}

TEST(MeasuredSteps, NeverGrowShorterWithMoreWork) {
  std::vector<results::Row> all = cells(true, 4);
  for (results::Row& cell : all)
    cell[measure::kStepP50Us] = 1000.0 - static_cast<double>(*cell[results::kBatch]);
  const MeasuredSteps steps = steps_of(all);
  EXPECT_GE(steps.decode(16, 4.0 * 4096).seconds, steps.decode(1, 4.0 * 4096).seconds);
  EXPECT_GT(steps.residual(), 0.0);
}

TEST(MeasuredSteps, RefuseWhatIsNoGridOfOneMachine) {
  const auto refused = [](std::vector<results::Row> all) {
    try {
      steps_of(all);
    } catch (const std::invalid_argument& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused(cells(false, 1)), "");
  EXPECT_NE(refused(cells("growth", 1)).find("has 0 cells"), std::string::npos);
  EXPECT_NE(refused(cells(true, 3)), "") << "another model";
  const auto changed = [&](const auto& change) {
    std::vector<results::Row> all = cells(false, 1);
    for (size_t i = 0; i < all.size(); ++i) change(all[i], i);
    return refused(all);
  };
  EXPECT_NE(changed([](auto& cell, size_t) { cell[results::kVariant] = "contiguous/f16/full"; }), "");
  EXPECT_NE(changed([](auto& cell, size_t) { cell[results::kBatch] = 4; }), "");
  EXPECT_NE(changed([](auto& cell, size_t) { cell[results::kKeptTokens] = 256; }), "");
  EXPECT_NE(changed([](auto& cell, size_t) { cell[results::kHeadDim] = 128; }), "");
  EXPECT_NE(changed([](auto& cell, size_t) { cell[results::kStatus] = results::Status::kFailed; }), "");
  EXPECT_NE(changed([](auto& cell, size_t i) {
              cell[results::kThreads] = static_cast<int64_t>(i % 2);
            }).find("more than one machine"),
            std::string::npos);
  EXPECT_NE(changed([](auto& cell, size_t i) { cell[results::kHost] = i % 2 == 0 ? "a" : "b"; }), "");
}

// Whole steps take what was measured and nothing else; attention alone leaves the weights to the stated machine.
TEST(MeasuredSteps, AreKeptApartFromWhatIsStated) {
  const Device device{.read_gbps = 1.0, .flops = 1e9};
  const auto parts = [&](const std::vector<results::Row>& all, const StepWork& work) {
    return StepTime(four_layers(), 1000000, device, steps_of(all)).parts(work);
  };
  const StepWork decode{.tokens = 2, .decoding = 2, .decoded_kv_bytes = 1e9, .decoded_pairs = 4.0 * 2 * 500};
  const double attention = 4 * (kOnce + kEach * 2 + kRow * 1000);
  const StepSeconds whole = parts(cells(true, 4), decode);
  EXPECT_NEAR(whole.measured, attention, 1e-9);
  EXPECT_EQ(whole.assumed + whole.computed, 0.0);
  EXPECT_STREQ(whole.from(), "measured");
  const StepSeconds alone = parts(cells(false, 1), decode);
  EXPECT_NEAR(alone.measured, attention, 1e-9);
  EXPECT_NEAR(alone.assumed, 1e-3, 1e-12) << "the weights, 1 MB at 1 GB/s";
  EXPECT_STREQ(alone.from(), "assumed");
  StepWork beyond = decode;
  beyond.decoding = beyond.tokens = 99;
  const StepSeconds far = parts(cells(true, 4), beyond);
  EXPECT_EQ(far.measured + far.assumed, 0.0);
  EXPECT_STREQ(far.from(), "computed");
  StepWork mixed = decode;
  mixed.tokens += 1000;
  mixed.pairs = 4.0 * 1000 * 500.5;
  const StepSeconds both = parts(cells(true, 4), mixed);
  EXPECT_NEAR(both.measured, attention, 1e-9);
  EXPECT_NEAR(both.assumed, (2.0 * 1000 * 1000 + 2.0 * 8 * 128 * mixed.pairs) / 1e9, 1e-9);
  const StepSeconds all = parts(cells_with_prompts(), mixed);
  EXPECT_NEAR(all.measured, attention + kPromptToken * 1000 + kPromptRow * 1000 * 500.5, 1e-9);
  EXPECT_STREQ(all.from(), "measured");
}

}  // namespace
}  // namespace kv::planner
