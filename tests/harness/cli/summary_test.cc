#include "harness/cli/summary.h"

#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "harness/experiments/cell_text.h"
#include "harness/io/text_table.h"
#include "harness/measure/tier_columns.h"
#include "harness/measure/time_columns.h"
#include "harness/results/cell_columns.h"
#include "harness/verify/metrics/list.h"

namespace kv {
namespace {

results::Row cell(const std::string& variant, int64_t tokens, const std::string& verdict, double ratio) {
  results::Row row;
  row[results::kVariant] = variant;
  row[results::kExperiment] = "decode";
  row[results::kPhase] = "decode";
  row[results::kWorkload] = "gaussian";
  row[results::kStatus] = results::Status::kOk;
  row[results::kBatch] = row[results::kThreads] = 1;
  row[results::kSeqLen] = tokens;
  row[results::kQHeads] = row[results::kKvHeads] = 32;
  row[results::kHeadDim] = 128;
  row[results::kBytesPayload] = 123456789;
  row[measure::kStepP50Us] = 12345.6;
  row[measure::kStepP50Us.low] = 12340.1;
  row[measure::kStepP50Us.high] = 12399.9;
  row[measure::kColdCeilingShare] = 0.91;
  row[measure::kColdAttendP50Us] = 1000.0;
  row[measure::kColdAttendP50Us.low] = 990.0;
  row[measure::kColdAttendP50Us.high] = 1010.0;
  row[measure::kColdRatioP50] = ratio;
  row[measure::kRatioP50] = ratio;
  row[measure::kRatioP50.low] = ratio - 0.01;
  row[measure::kRatioP50.high] = ratio + 0.01;
  row.number("err_rel_l2") = 0.01 * ratio;
  row[results::kVerdict] = verdict;
  return row;
}

std::vector<results::Row> cells_at(const std::vector<int64_t>& lengths) {
  const std::string longest =
      "paged(block=64)/kivi(bits=2,group=64,residual=128)/heavy_hitters(budget=1024,recent=128)";
  std::vector<results::Row> cells;
  for (const int64_t tokens : lengths) {
    cells.push_back(cell("contiguous", tokens, "baseline", 1.0));
    cells.push_back(cell("contiguous", tokens, results::kAaVerdict, 1.001));
    cells.push_back(cell(longest, tokens, "faster", 0.5 + 0.01 * static_cast<double>(cells.size())));
  }
  cells.back()[results::kStatus] = results::Status::kOutOfMemory;
  return cells;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Summary, OfAFewSweepPointsIsATableEachThatFits) {
  const std::string text = cli::summary(cells_at({512, 4096}), {.full = true});
  EXPECT_NE(text.find("decode, gaussian, batch 1, 4096 tokens, 32/32 heads of 128, 1 thread\n"),
            std::string::npos);
  EXPECT_NE(text.find("contiguous  [A/A test]"), std::string::npos);
  EXPECT_NE(text.find("paged(block=64)"), std::string::npos);
  EXPECT_NE(text.find("…"), std::string::npos);
  EXPECT_NE(text.find("0.52 (0.51–0.53) faster"), std::string::npos);
  EXPECT_NE(text.find("out_of_memory"), std::string::npos);
  EXPECT_NE(text.find("A/A test: 0 of 2 comparisons of the baseline with itself"), std::string::npos);
  for (const std::string& line : lines_of(text)) EXPECT_LE(io::text_width(line), cli::kSummaryWidth) << line;
}

TEST(Summary, AnswersFirstAtTheLongestLength) {
  std::vector<results::Row> cells = cells_at({512, 4096});
  cells.back()[results::kStatus] = results::Status::kOk;
  cells.back().number("err_rel_l2") = 0.15;
  for (results::Row& row : cells)
    row[results::kHeldBytesPerToken] = row[results::kVerdict] == "faster" ? 100.0 : 400.0;
  const std::vector<std::string> lines = lines_of(cli::summary(cells));
  ASSERT_GT(lines.size(), 4u);
  EXPECT_NE(lines[2].find("decode, 4096 tokens"), std::string::npos) << lines[2];
  EXPECT_NE(lines[2].find("fastest"), std::string::npos) << lines[2];
  EXPECT_NE(lines[2].find("paged(block=64)"), std::string::npos) << lines[2];
  EXPECT_NE(lines[2].find("time / baseline 0.55 (0.54–0.56)"), std::string::npos) << lines[2];
  EXPECT_NE(lines[3].find("100 bytes/token"), std::string::npos) << lines[3];
  EXPECT_NE(lines[4].find("most exact  contiguous"), std::string::npos) << lines[4];
  EXPECT_NE(lines[4].find("error 1.0e-02"), std::string::npos) << lines[4];
}

// An error of 3 makes neither the time nor the size worth naming; the limit is said where it leaves out a variant.
TEST(Summary, NamesNoFastestWithoutLimitOfItsError) {
  std::vector<results::Row> cells = cells_at({4096});
  cells.back()[results::kStatus] = results::Status::kOk;
  for (results::Row& row : cells) {
    row[results::kHeldBytesPerToken] = row[results::kVerdict] == "faster" ? 100.0 : 400.0;
    row.number("err_rel_l2") = row[results::kVerdict] == "faster" ? 3.0 : 0.01;
  }
  const std::vector<std::string> lines = lines_of(cli::summary(cells));
  EXPECT_NE(lines[2].find("fastest of error ≤ 0.2"), std::string::npos) << lines[2];
  EXPECT_EQ(lines[2].find("paged"), std::string::npos) << lines[2];
  EXPECT_NE(lines[3].find("smallest of error ≤ 0.2"), std::string::npos) << lines[3];
  EXPECT_NE(lines[3].find("400 bytes/token"), std::string::npos) << lines[3];
  const std::string text = cli::summary(cells, {.width = 1000});
  EXPECT_NE(text.find("only caches of error ≤ 0.2 can be the fastest"), std::string::npos) << text;
  for (results::Row& row : cells) {
    row[results::kLayers] = 1;
    row[results::kModelLayers] = 32;
    row[results::kSeqLen] = 16384;
  }
  const std::string narrow = cli::summary(cells, {.width = 90});
  EXPECT_NE(lines_of(narrow)[1].find("error"), std::string::npos) << narrow;
}

TEST(Summary, RecommendsNoOracle) {
  std::vector<results::Row> cells = cells_at({4096});
  cells.back()[results::kStatus] = results::Status::kOk;
  for (results::Row& row : cells) {
    row[results::kHeldBytesPerToken] = 100.0;
    if (row[results::kVerdict] == "faster") row[results::kOracle] = "reads every row to choose";
  }
  const std::vector<std::string> lines = lines_of(cli::summary(cells));
  for (size_t i = 2; i < 5; ++i) EXPECT_EQ(lines[i].find("paged"), std::string::npos) << lines[i];
}

// One layer of a model is not called the model.
TEST(Summary, SaysWhichPartOfTheModelWasMeasured) {
  std::vector<results::Row> cells = cells_at({4096});
  for (results::Row& row : cells) {
    row[results::kLayers] = 1;
    row[results::kModelLayers] = 32;
    row[results::kBytesPayload] = int64_t{1} << 20;
    row[results::kModelBytes] = int64_t{32} << 20;
    row[results::kHeldBytesPerToken] = 256.0;
  }
  const std::string text = cli::summary(cells, {.full = true});
  EXPECT_NE(text.find("4096 tokens, 1 of 32 layers, 32/32 heads of 128"), std::string::npos) << text;
  EXPECT_NE(text.find("1.00 MiB (32.0 MiB)"), std::string::npos) << text;
  EXPECT_NE(text.find("256 bytes/token, 1 of 32 layers"), std::string::npos) << text;
}

// Whatever the sweep: every experiment, many lengths, many variants, a narrow terminal.
TEST(Summary, HasAtMostFortyLinesThatFit) {
  std::vector<results::Row> cells;
  for (const char* experiment : {"decode", "growth", "prefill", "batch", "budget", "checkpoint", "quality",
                                 "recall", "generate", "stream"}) {
    for (int64_t tokens = 1024; tokens <= 8192; tokens *= 2) {
      for (const char* workload : {"gaussian", "sinks", "heavy"}) {
        for (int variant = 0; variant < 60; ++variant) {
          cells.push_back(
              cell("paged(block=" + std::to_string(variant + 1) + ",order=shuffled)/kivi(bits=2,group=64)",
                   tokens, variant == 0 ? "baseline" : "slower", 1.0 + 0.1 * variant));
          cells.back()[results::kExperiment] = experiment;
          cells.back()[results::kWorkload] = workload;
          cells.back()[measure::kNoise] =
              "the step's interval is wide: its upper end is 9.9 times its lower end";
          if (variant % 7 == 3)
            results::fail(cells.back(), results::Status::kUnsupported, "a long reason why it cannot run");
          if (variant == 5) cells.back()[results::kKeepsAll] = 1;
        }
      }
    }
  }
  for (const size_t width : {size_t{80}, cli::kSummaryWidth}) {
    const std::string text =
        cli::summary(cells, {.width = width, .more = "kvlab summary results/local/everything --table full"});
    EXPECT_LE(lines_of(text).size(), cli::kSummaryLines) << width;
    for (const std::string& line : lines_of(text)) EXPECT_LE(io::text_width(line), width) << line;
    for (const char* said : {"stream (1 ", "--table full", "unsupported", "[keeps all]", "Noise"})
      EXPECT_NE(text.find(said), std::string::npos) << said << " at " << width << "\n" << text;
  }
  EXPECT_GT(lines_of(cli::summary(cells, {.full = true})).size(), 7000u);
}

// The baseline's own times allow no verdict: nothing is called the fastest, and a run of noise says so first.
TEST(Summary, NamesNoFastestBesideAnUnreliableBaseline) {
  std::vector<results::Row> cells{cell("contiguous", 512, "baseline", 1.0),
                                  cell("paged", 512, "faster", 0.5)};
  for (results::Row& row : cells) {
    row[results::kVersus] = row[results::kVerdict] == "baseline" ? "" : "contiguous";
    row[measure::kNoise] = "a wide interval";
  }
  cells.push_back(cell("segmented", 512, "faster", 0.4));
  const std::string before = cli::summary(cells, {.full = true});
  EXPECT_NE(before.find("0.40 (0.39–0.41) faster"), std::string::npos) << before;
  cells[1][results::kVerdict] = cells[2][results::kVerdict] = results::kUnreliable;
  const std::string text = cli::summary(cells, {.full = true});
  EXPECT_NE(text.find("none: the baseline is noisy"), std::string::npos) << text;
  EXPECT_NE(text.find("0.40 (0.39–0.41) unreliable"), std::string::npos) << text;
  EXPECT_EQ(text.find(" faster"), std::string::npos) << text;
  const std::vector<std::string> lines = lines_of(text);
  EXPECT_EQ(lines[1].find("2 of 3 timed cells are noisy"), 0u) << text;
}

// A column's heading is its definition's, wherever it is shown.
TEST(Summary, OneHeadingForOneColumn) {
  EXPECT_EQ(experiments::kErrorText.head, verify::metric::rel_l2.column.heading);
  const std::string text = cli::summary(cells_at({512}), {.full = true});
  for (const auto& heading : {measure::kRatioP50.heading, measure::kStepP50Us.heading})
    EXPECT_NE(text.find(heading), std::string::npos) << heading << text;
}

// The table of an experiment with many variants shows as many as there is room for.
TEST(Summary, OfManyVariantsIsATableAsLongAsThereIsRoom) {
  std::vector<results::Row> cells;
  for (int64_t tokens : {512, 1024}) {
    for (int variant = 0; variant < 60; ++variant) {
      cells.push_back(cell("paged(block=" + std::to_string(variant + 1) + ")", tokens,
                           variant == 0 ? "baseline" : "slower", 1.0 + variant));
    }
  }
  const std::string text = cli::summary(cells, {.width = 120, .more = "kvlab summary X --table full"});
  EXPECT_NE(text.find("ranges over a variant's cells"), std::string::npos) << text;
  EXPECT_LE(lines_of(text).size(), cli::kSummaryLines);
  EXPECT_GE(lines_of(text).size(), cli::kSummaryLines - 2) << text;
}

// Tiers' reads have a table of their own if there are several tiers and it fits.
TEST(Summary, ShowsTiers) {
  std::vector<results::Row> cells = cells_at({512});
  EXPECT_EQ(cli::summary(cells).find("a step reads"), std::string::npos);
  results::Row& row = cells[1];
  row[measure::kBytesHot] = row[measure::kBytesWarm] = 4096;
  row[measure::kReadHotBytes] = 1024;
  row[measure::kReadWarmBytes] = 2048;
  row[measure::kReadDiskBytes] = 3 << 20;
  row[measure::kDiskReadGbps] = 1.5;
  row[measure::kDiskCeilingShare] = 0.75;
  row[measure::kDiskDeviceShare] = 1.0;
  row[measure::kTierBound] = "disk";
  row[measure::kTierBoundUs] = 1234.5;
  const std::string text = cli::summary(cells);
  for (const char* said :
       {"a step reads", "1.00 KiB", "2.00 KiB", "3.00 MiB, 1.5, 75 %", "100 %", "1234.5 disk"})
    EXPECT_NE(text.find(said), std::string::npos) << said << text;
  for (const std::string& line : lines_of(text)) EXPECT_LE(io::text_width(line), cli::kSummaryWidth) << line;
  std::vector<results::Row> many;
  for (int i = 0; i < 11; ++i) {
    many.push_back(row);
    many.back()[results::kVariant] += std::to_string(i);
  }
  for (const int64_t tokens : {1024, 2048}) {
    many.push_back(row);
    many.back()[results::kSeqLen] = tokens;
  }
  EXPECT_LE(lines_of(cli::summary(many)).size(), cli::kSummaryLines);
}

TEST(Summary, OfManySweepPointsIsATableAnExperiment) {
  std::vector<int64_t> lengths;
  for (int64_t i = 1; i <= 20; ++i) lengths.push_back(512 * i);
  const std::string text = cli::summary(cells_at(lengths));
  EXPECT_NE(text.find("19 of 20"), std::string::npos);  // the variant that ran out of memory once
  EXPECT_NE(text.find("0.52–"), std::string::npos);
  EXPECT_EQ(text.find("loss change"), std::string::npos);  // no cell has one
  EXPECT_LE(lines_of(text).size(), 16u);
  for (const std::string& line : lines_of(text)) EXPECT_LE(io::text_width(line), cli::kSummaryWidth) << line;
}

}  // namespace
}  // namespace kv
