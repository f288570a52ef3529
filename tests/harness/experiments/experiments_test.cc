// The budget and checkpoint experiments end to end on tiny shapes, the check of evictions, and the page of pairs.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "harness/cli/listing.h"
#include "harness/experiments/budget/columns.h"
#include "harness/experiments/checkpoint/columns.h"
#include "harness/experiments/driver.h"
#include "harness/experiments/list.h"
#include "harness/experiments/plan.h"
#include "harness/experiments/written_columns.h"
#include "harness/measure/cell.h"
#include "harness/measure/disk_need.h"
#include "harness/measure/time_columns.h"
#include "harness/results/cell_columns.h"
#include "harness/verify/error_columns.h"
#include "harness/verify/policy_check.h"
#include "harness/workload/recorded_workload.h"
#include "tests/temp.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

// A replay has no workload to ask for the model's shape, and a run out of memory needs the cells of its points.
TEST(SweepPoint, WithoutAWorkloadHasCells) {
  const config::Config config = experiments::load_config("configs/replay.toml", {});
  const memory::RunContext context("cpu", "auto", 1);
  const experiments::Sweep sweep = experiments::plan_sweep(config, context);
  for (const measure::SweepPoint& point : sweep.points) {
    const measure::Cells cells = measure::make_cells(point);
    ASSERT_FALSE(cells.empty());
    for (const auto& cell : cells) {
      EXPECT_EQ(cell->result[results::kLayers], 32);
      EXPECT_GT(measure::held_bytes(point, cell->spec), 0);
      EXPECT_EQ(measure::disk_need(point, cell->spec).bytes, 0);
    }
  }
}

// Runs a config in a folder of its own, which is gone afterwards.
class Experiments : public testing::Test {
 protected:
  config::Config config(const std::string& text) {
    std::ofstream(folder_ / "test.toml")
        << text << "threads = 1\n[model]\nq_heads = 4\nkv_heads = 2\nhead_dim = 32\n";
    return experiments::load_config((folder_ / "test.toml").string(), {});
  }

  std::map<std::string, results::Row> run(const std::string& text) {
    const experiments::RunOutcome outcome =
        experiments::run_config(config(text), {.out = folder_ / "out",
                                               .resume = false,
                                               .stop = [] { return false; },
                                               .note = [](const std::string&) {},
                                               .progress = [](auto&&...) {}});
    EXPECT_TRUE(outcome.finished);
    std::map<std::string, results::Row> rows;
    for (const results::Row& row : outcome.cells) rows.insert_or_assign(row[results::kVariant], row);
    EXPECT_EQ(rows.size(), outcome.cells.size());
    return rows;
  }

  const test::TempFolder folder_;
};

TEST_F(Experiments, BudgetHoldsErrorsAgainstBytes) {
  auto rows =
      run("experiment = 'budget'\nsweep.seq_len = 96\nsweep.budget = [16, 32]\nsweep.workload = 'local'\n"
          "measure.steps = 8\nsweep.variants = ['contiguous', 'contiguous/f16', "
          "'contiguous/ring(window={budget})', 'contiguous/h2o(heavy={budget/2},recent={budget/2})', "
          "'contiguous/random(budget={budget})', 'segmented(rows=8)/snapkv(budget={budget-8},window=4)']\n");
  ASSERT_EQ(rows.size(), 10u);
  const auto number = [&](const std::string& variant, const char* column) {
    const auto row = rows.find(variant);
    return row == rows.end() ? NAN : row->second.number(experiments::cell_table().at(column)).value_or(NAN);
  };
  for (const auto& [variant, row] : rows) {
    EXPECT_EQ(row[results::kStatus], results::Status::kOk) << variant << ": " << row[results::kReason];
    EXPECT_EQ(row[verify::kErrPositions], 8) << variant;
    EXPECT_FALSE(row[measure::kStepP50Us]) << variant;
  }
  // K and V of 2 heads of 32 f32 elements a row; ring keeps no more than its rows.
  EXPECT_EQ(number("contiguous", "held_bytes_per_token"), 2 * 2 * 32 * 4);
  EXPECT_EQ(number("contiguous/f16", "held_bytes_per_token"), 2 * 2 * 32 * 2);
  EXPECT_NEAR(number("contiguous/ring(window=16)", "held_bytes_per_token"), 512 * 16 / 96.0, 1e-6);
  for (const int budget : {16, 32}) {
    const std::string b = std::to_string(budget), half = std::to_string(budget / 2);
    for (const std::string& variant :
         {"contiguous/ring(window=" + b + ")", "contiguous/h2o(heavy=" + half + ",recent=" + half + ")",
          "contiguous/random(budget=" + b + ")",
          "segmented(rows=8)/snapkv(budget=" + std::to_string(budget - 8) + ",window=4)"}) {
      EXPECT_EQ(number(variant, "kept_tokens"), budget) << variant;
      EXPECT_EQ(rows.at(variant)[verify::kEvictionCheck], "fp64") << variant;
      EXPECT_GT(number(variant, "policy_choices"), 0) << variant;
      EXPECT_GT(number(variant, "err_rel_l2"), 1e-3) << variant;
    }
  }
  EXPECT_EQ(number("contiguous", "kept_tokens"), 96);
  EXPECT_EQ(number("contiguous", "policy_choices"), 0);
  EXPECT_EQ(rows.at("contiguous")[verify::kEvictionCheck], "") << "nothing is evicted";
  EXPECT_LT(number("contiguous", "err_rel_l2"), 1e-5);
  EXPECT_GT(number("contiguous/random(budget=16)", "err_rel_l2"),
            number("contiguous/random(budget=32)", "err_rel_l2"));
}

// Sequences of a batch are draws of their own. The interval is over them, and 95 % of such intervals have the error of many
// sequences in them; one of few shows nothing.
TEST_F(Experiments, BudgetsErrorHasAnIntervalOverTheSequencesOfABatch) {
  const auto errors = [&](int batch) {
    fs::remove_all(folder_ / "out");
    return run(
        "experiment = 'budget'\nsweep.seq_len = 64\nsweep.workload = 'gaussian'\nmeasure.steps = "
        "2\nsweep.batch = " +
        std::to_string(batch) + "\nsweep.variants = ['contiguous/q4_0', 'contiguous/ring(window=16)']\n");
  };
  const auto few = errors(4), some = errors(6), many = errors(40);
  for (const std::string variant : {"contiguous/q4_0", "contiguous/ring(window=16)"}) {
    const auto error = [&](const auto& rows) { return rows.at(variant).number("err_rel_l2").value(); };
    EXPECT_FALSE(few.at(variant)[experiments::kErrCiLow] || few.at(variant)[experiments::kErrCiHigh])
        << variant;
    const auto low = some.at(variant)[experiments::kErrCiLow].value(),
               high = some.at(variant)[experiments::kErrCiHigh].value();
    EXPECT_LT(low, error(some));
    EXPECT_GT(high, error(some));
    EXPECT_NEAR(low * high, error(some) * error(some), 1e-9 * error(some))
        << "around the mean, in logarithms";
    const auto narrow =
        many.at(variant)[experiments::kErrCiHigh].value() / many.at(variant)[experiments::kErrCiLow].value();
    EXPECT_LT(narrow, high / low) << variant;
    EXPECT_LT(std::max(low, many.at(variant)[experiments::kErrCiLow].value()),
              std::min(high, many.at(variant)[experiments::kErrCiHigh].value()))
        << variant << ": intervals of the same error overlap";
    EXPECT_EQ(some.at(variant)[verify::kErrHeads], 6 * some.at(variant)[results::kQHeads].value());
  }
}

TEST_F(Experiments, CheckpointTimesEveryOperation) {
  auto rows =
      run("experiment = 'checkpoint'\nsweep.seq_len = 64\nsweep.batch = 2\nmeasure.steps = 2\n"
          "measure.repetitions = 3\nmeasure.retries = 0\nsweep.variants = ['contiguous', "
          "'contiguous/f16/ring(window=8)', "
          "'segmented(rows=16)', 'contiguous/kivi(residual=8,group=8)', 'tiered(hot=8,warm=8)']\n");
  ASSERT_EQ(rows.size(), 5u);
  for (const auto& [variant, row] : rows) {
    EXPECT_EQ(row[results::kStatus], results::Status::kOk) << variant << ": " << row[results::kReason];
    for (const char* operation : {"save", "load", "freeze", "unfreeze", "fork"})
      EXPECT_GT(row.number(experiments::cell_table().at(std::string(operation) + "_p50_us")).value_or(0), 0)
          << variant << operation;
    EXPECT_EQ(row[measure::kSampleCount], 6) << variant;
  }
  // All of one sequence's rows, and little else; shared where the placement can.
  const double bytes = 64 * 2 * 2 * 32 * 4;
  EXPECT_GT(rows.at("contiguous")[experiments::kSavedBytes], bytes);
  EXPECT_LT(rows.at("contiguous")[experiments::kSavedBytes], bytes + 1000);
  EXPECT_LT(rows.at("contiguous/f16/ring(window=8)")[experiments::kSavedBytes], bytes / 16 + 1000);
  EXPECT_EQ(rows.at("contiguous")[experiments::kForkBytes], bytes);
  EXPECT_EQ(rows.at("segmented(rows=16)")[experiments::kForkBytes], 0);
  EXPECT_FALSE(fs::exists(folder_ / "out" / "checkpoint.part"));
}

TEST(PolicyCheck, FindsAnEvictionThatIsNotThePolicys) {
  const auto workload =
      workload::make_synthetic("heavy", {.layers = 1, .q_heads = 4, .kv_heads = 2, .head_dim = 32}, 1);
  const verify::PolicyCheck right =
      verify::check_policy(parse_spec("contiguous/tova(budget=16)"), *workload, 64, 0);
  EXPECT_EQ(right.failure(), "");
  EXPECT_EQ(right.choices, 2 * (64 - 16));
  // Caches that keep as many tokens, but other ones.
  for (const char* spec : {"contiguous/tova(budget=16)", "contiguous/h2o(heavy=8,recent=8)",
                           "contiguous/random(budget=16)", "contiguous/ring(window=16)"}) {
    reference::Policy other = verify::policy_of(parse_spec("contiguous/knorm(budget=16)"), 64, 2);
    EXPECT_NE(verify::check_policy(parse_spec(spec), other, *workload, 64, 0).failure().find("eviction"),
              std::string::npos)
        << spec;
  }
  const reference::Policy other_seed =
      verify::policy_of(parse_spec("contiguous/random(budget=16,seed=1)"), 64, 2);
  EXPECT_NE(verify::check_policy(parse_spec("contiguous/random(budget=16)"), other_seed, *workload, 64, 0)
                .failure(),
            "");
  verify::PolicyCheck wrong = right;
  wrong.out_rel_l2 = NAN;
  EXPECT_NE(wrong.failure().find("outputs"), std::string::npos);
}

TEST(PolicyCheck, LeavesOutWhatWouldCostTooMuch) {
  const auto workload =
      workload::make_synthetic("gaussian", {.layers = 1, .q_heads = 32, .kv_heads = 8, .head_dim = 128}, 1);
  const verify::PolicyCheck check =
      verify::check_policy(parse_spec("contiguous/tova(budget=8192)"), *workload, 16384, 0);
  EXPECT_EQ(check.choices, 0);
  EXPECT_EQ(check.failure(), "");
}

TEST(RecordedWorkload, ReadsAsWhatItRecorded) {
  const workload::WorkloadShape shape{.layers = 2, .q_heads = 4, .kv_heads = 2, .head_dim = 16};
  const auto workload = workload::make_synthetic("heavy", shape, 3);
  const workload::RecordedWorkload recorded(*workload, 2, 50);
  for (const auto [sequence, layer, first, n] : {std::array{0, 0, 0, 50}, {1, 1, 7, 20}, {1, 0, 49, 1}}) {
    std::vector<float> q(static_cast<size_t>(4 * n * 16)), k(q.size() / 2), v(k.size());
    auto q2 = q, k2 = k, v2 = v;
    workload->read(sequence, layer, first, n, q.data(), k.data(), v.data());
    recorded.read(sequence, layer, first, n, q2.data(), k2.data(), v2.data());
    EXPECT_EQ(q, q2);
    EXPECT_EQ(k, k2);
    EXPECT_EQ(v, v2);
  }
  std::vector<float> k(1000);
  EXPECT_THROW(recorded.read(0, 0, 50, 1, nullptr, k.data(), nullptr), std::logic_error);
}

TEST(Pairs, TheCommittedPageIsTheRegistrys) {
  std::ifstream file(KVLAB_SOURCE_DIR "/variants/pairs.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), cli::pairs_page()) << "./kvlab list --pairs > variants/pairs.md";
}

}  // namespace
}  // namespace kv
