#include "harness/cli/summary.h"

#include <gtest/gtest.h>

#include <sstream>

#include "harness/io/aligned_text.h"

namespace kv {
namespace {

results::CellResult cell(const std::string& variant, int64_t tokens, const std::string& verdict,
                         double ratio) {
  results::CellResult row;
  row.variant = variant;
  row.experiment = "decode";
  row.phase = "decode";
  row.workload = "gaussian";
  row.status = results::Status::kOk;
  row.batch = row.threads = 1;
  row.seq_len = tokens;
  row.q_heads = row.kv_heads = 32;
  row.head_dim = 128;
  row.bytes_payload = 123456789;
  row.step_p50_us = 12345.6;
  row.step_ci_low_us = 12340.1;
  row.step_ci_high_us = 12399.9;
  row.cold_ceiling_share = 0.91;
  row.cold_attend_p50_us = 1000.0;
  row.cold_ci_low_us = 990.0;
  row.cold_ci_high_us = 1010.0;
  row.cold_ratio_p50 = ratio;
  row.ratio_p50 = ratio;
  row.ratio_ci_low = ratio - 0.01;
  row.ratio_ci_high = ratio + 0.01;
  row.metric("err_rel_l2") = 0.01 * ratio;
  row.verdict = verdict;
  return row;
}

std::vector<results::CellResult> cells_at(const std::vector<int64_t>& lengths) {
  const std::string longest =
      "paged(block=64)/kivi(bits=2,group=64,residual=128)/heavy_hitters(budget=1024,recent=128)";
  std::vector<results::CellResult> cells;
  for (const int64_t tokens : lengths) {
    cells.push_back(cell("contiguous", tokens, "baseline", 1.0));
    cells.push_back(cell("contiguous", tokens, results::CellResult::kAaVerdict, 1.001));
    cells.push_back(cell(longest, tokens, "faster", 0.5 + 0.01 * static_cast<double>(cells.size())));
  }
  cells.back().status = results::Status::kOutOfMemory;
  return cells;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Summary, OfAFewSweepPointsIsATableEachThatFits) {
  const std::string text = cli::summary(cells_at({512, 4096}));
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

TEST(Summary, OfManySweepPointsIsATableAnExperiment) {
  std::vector<int64_t> lengths;
  for (int64_t i = 1; i <= 20; ++i) lengths.push_back(512 * i);
  const std::string text = cli::summary(cells_at(lengths));
  EXPECT_NE(text.find("20 sweep points"), std::string::npos);
  EXPECT_NE(text.find("19 of 20"), std::string::npos);  // of the variant that ran out of memory once
  EXPECT_NE(text.find("0.52–"), std::string::npos);
  EXPECT_EQ(text.find("loss change"), std::string::npos);  // no cell has one
  EXPECT_LE(lines_of(text).size(), 12u);
  for (const std::string& line : lines_of(text)) EXPECT_LE(io::text_width(line), cli::kSummaryWidth) << line;
}

}  // namespace
}  // namespace kv
