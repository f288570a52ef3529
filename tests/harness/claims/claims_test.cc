// Expressions, and claim files from text to every verdict, or refused.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "harness/claims/check.h"
#include "harness/claims/claims_text.h"
#include "harness/claims/expression.h"
#include "harness/claims/reproduce.h"
#include "tests/message_of.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

TEST(Expression, NamesWhatItNeedsAndShowsItsArithmetic) {
  const claims::Expression e("2 * layers * ceil(T / 16) + 1e3");
  EXPECT_EQ(e.names(), (std::vector<std::string>{"T", "layers"}));
  const auto values = [](const std::string& name) { return name == "T" ? 100.0 : 32.0; };
  EXPECT_DOUBLE_EQ(e.value(values), 2 * 32 * 7 + 1000);
  EXPECT_EQ(e.with_numbers(values), "2 * 32 * ceil(100 / 16) + 1e3");
  for (const char* bad : {"2 *", "(1", "f(2)", "1 2"})
    EXPECT_NE(message_of([&] { claims::Expression{bad}; }), "") << bad;
}

// Claim files in a folder of their own.
class Claims : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("claims_test." + std::to_string(::getpid()) + "." +
                                              testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  claims::ClaimFile load(const std::string& text) {
    std::ofstream(folder_ / "paper.toml") << "document = \"a paper\"\n" << text;
    return claims::load_claims((folder_ / "paper.toml").string());
  }

  claims::Reproduction run(const claims::ClaimFile& file, bool quick = false) {
    const auto quiet = [](auto&&...) {};
    return claims::reproduce({file}, {.out = folder_ / ("out" + std::to_string(++runs_)),
                                      .quick = quick,
                                      .threads = 1,
                                      .stop = [] { return false; },
                                      .note = quiet,
                                      .progress = [&](const std::string&) { return quiet; }});
  }

  // "verdict: reason" of every figure of one claim.
  std::vector<claims::FigureResult> figures(const std::string& keys, const std::string& head = "") {
    return run(load(head + claim(keys))).figures;
  }
  claims::FigureResult only(const std::string& keys, const std::string& head = "") {
    return figures(keys, head).at(0);
  }

  static std::string claim(const std::string& keys) {
    return "[[claim]]\nid = \"c\"\ntext = \"t\"\nwhere = \"w\"\nquote = \"q\"\n" + keys + "\n";
  }

  fs::path folder_;
  int runs_ = 0;
};

const char* const kModel = "[model]\nlayers = 2\nkv_heads = 4\nhead_dim = 64\n";

TEST_F(Claims, AClosedFormIsComputedAndCounted) {
  // 2 tensors x 2 layers x 4 heads x 64 x 100 tokens x 4 B
  const claims::FigureResult row =
      only("check = \"closed form\"\npublished = \"409.6 KB\"\nbytes = { c = \"contiguous\" }\ntokens = 100",
           kModel);
  EXPECT_EQ(row.verdict, "reproduced") << row.reason;
  EXPECT_EQ(row.computed_value.value(), 2 * 2 * 4 * 64 * 100 * 4);
  EXPECT_EQ(row.measured_value.value(), row.computed_value.value());
}

TEST_F(Claims, AWrongFigureShowsItsArithmetic) {
  const claims::FigureResult row =
      only("check = \"closed form\"\npublished = \"300 KB\"\nbytes = { c = \"contiguous\" }\ntokens = 100",
           kModel);
  EXPECT_EQ(row.verdict, "contradicted");
  EXPECT_EQ(row.reason,
            "2 x 2 layers x 4 KV heads x 64 x 100 tokens x 4 B = 409.6 KB or 400 KiB, the published "
            "figure 26.8 % less");
}

TEST_F(Claims, AFigureInBinaryUnitsIsReproducedAndSaysSo) {
  const claims::FigureResult row =
      only("check = \"formula\"\npublished = \"48 MB\"\ncomputed = \"2 * K * 24576\"");
  EXPECT_EQ(row.verdict, "reproduced");
  EXPECT_EQ(row.reason, "with K = 1024 and MB = MiB");
  EXPECT_EQ(row.computed, "48 MiB");
}

TEST_F(Claims, AGigabyteMayBeAThousandMebibytes) {
  const claims::FigureResult row =
      only("check = \"formula\"\npublished = \"4.8 GB\"\ncomputed = \"200 * K * 24576\"");
  EXPECT_EQ(row.verdict, "reproduced");
  EXPECT_EQ(row.reason, "with K = 1024 and GB = 1000 MiB");
}

TEST_F(Claims, AFigureCanBeReadAsOneSided) {
  const std::string keys =
      "check = \"formula\"\npublished = \"1×\"\ntolerance = \"10 %\"\nread_as = \"at most\"\n";
  EXPECT_EQ(only(keys + "computed = \"0.65\"").verdict, "reproduced");
  EXPECT_EQ(only(keys + "computed = \"1.2\"").verdict, "contradicted");
  EXPECT_EQ(only("check = \"formula\"\npublished = \"up to 8×\"\ncomputed = \"3\"").verdict, "consistent");
}

TEST_F(Claims, ATablesRowsAndFiguresAreFiguresEach) {
  const std::vector<claims::FigureResult> rows = figures(
      "check = \"formula\"\ncolumns = [\"n\", \"square\", \"cube\"]\nrows = [[2, \"4\", \"8\"], [3, \"9\", "
      "\"26\"]]\n"
      "[[claim.figure]]\nname = \"square\"\npublished = \"{square}\"\ncomputed = \"n^2\"\n"
      "[[claim.figure]]\nname = \"cube\"\npublished = \"{cube}\"\ncomputed = \"n^3\"");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[2].figure, "3, square");
  EXPECT_EQ(rows[1].verdict, "reproduced");
  EXPECT_EQ(rows[3].verdict, "contradicted");
  EXPECT_EQ(rows[3].reason, "3^3 = 27, the published figure 3.7 % less");
}

TEST_F(Claims, AGrowthLawIsFitted) {
  const std::string keys = "check = \"growth law\"\nover = { T = [16, 256, 4096] }\n";
  EXPECT_EQ(only(keys + "published = \"O(T^2)\"\ncomputed = \"3 * T * (T + 1)\"").verdict, "reproduced");
  const claims::FigureResult wrong = only(keys + "published = \"O(T)\"\ncomputed = \"T^1.5\"");
  EXPECT_EQ(wrong.verdict, "contradicted");
  EXPECT_EQ(wrong.computed, "O(T^1.5)");
  EXPECT_EQ(only(keys + "published = \"O(T)\"\nbytes = { c = \"contiguous\" }\ntokens = \"T\"").measured,
            "O(T^1)");
}

TEST_F(Claims, ARooflineIsTheMostOfARateAndTheLeastOfATime) {
  const auto verdict = [&](const std::string& published, const std::string& bound) {
    return only("check = \"roofline\"\npublished = \"" + published + "\"\ncomputed = \"" + bound + "\"");
  };
  EXPECT_EQ(verdict("~15 tok/s", "27").verdict, "consistent");
  EXPECT_EQ(verdict("~15 tok/s", "27").reason, "a bound: 27 tok/s is the most that is possible");
  EXPECT_EQ(verdict("~43 tok/s", "42").verdict, "consistent");
  EXPECT_EQ(verdict("~43 tok/s", "36").verdict, "contradicted");
  EXPECT_EQ(verdict(">25 tok/s", "38").verdict, "consistent");
  EXPECT_EQ(verdict(">8 tok/s", "4").verdict, "contradicted");
  EXPECT_EQ(verdict("<8 tok/s", "4").verdict, "reproduced");
  EXPECT_EQ(verdict("5 ms", "0.004").verdict, "consistent");
  EXPECT_EQ(verdict("5 ms", "0.006").verdict, "contradicted");
  EXPECT_EQ(verdict("<5 ms", "0.004").verdict, "consistent");
  EXPECT_EQ(verdict("yes", "1 < 2").verdict, "consistent");
  EXPECT_EQ(verdict("yes", "2 < 1").verdict, "contradicted");
}

TEST_F(Claims, WhatIsTrueByConstructionIsNoReproduction) {
  const std::string keys = "check = \"formula\"\npublished = \"1×\"\nby_construction = \"one over one\"\n";
  EXPECT_EQ(only(keys + "computed = \"1\"").verdict, "true by construction");
  EXPECT_EQ(only(keys + "computed = \"1\"").reason, "one over one");
  EXPECT_EQ(only(keys + "computed = \"2\"").verdict, "contradicted");
}

TEST_F(Claims, AReplicaThatDisagreesContradictsNothing) {
  const std::string keys = "published = \"2×\"\ncomputed = \"3\"\ncheck = \"formula\"";
  EXPECT_EQ(only(keys).verdict, "contradicted");
  EXPECT_EQ(only(keys + "\nreplica = \"qualitative\"").verdict, "differs in this replica");
}

TEST_F(Claims, NotTestableGivesItsReason) {
  const claims::FigureResult row =
      only("check = \"none\"\npublished = \"8×\"\nreason = \"no such hardware\"");
  EXPECT_EQ(row.verdict, "not testable here");
  EXPECT_EQ(row.reason, "no such hardware");
}

const char* const kRuns = R"(
[run.small]
experiment = "budget"
threads = 1
seeds = [1, 2, 3, 4, 5]
model = { q_heads = 2, kv_heads = 1, head_dim = 32 }
sweep = { variants = ["contiguous", "contiguous/q8_0", "contiguous/q4_0", "paged/kivi"], seq_len = [64], workload = ["gaussian"] }
measure = { steps = 4 }
[run.timed]
experiment = "growth"
threads = 1
model = { q_heads = 2, kv_heads = 1, head_dim = 32 }
sweep = { variants = ["concat", "doubling"], seq_len = [100, 200] }
measure = { attend = false, repetitions = 5, null_ab = false }
)";

TEST_F(Claims, MeasurementsHaveIntervalsOverSeeds) {
  const std::string cells =
      "cells.coarse = { run = \"small\", variant = \"contiguous/q4_0\", metric = \"err_rel_l2\" }\n"
      "cells.fine = { run = \"small\", variant = \"contiguous/q8_0\", metric = \"err_rel_l2\" }\nmeasured = "
      "\"coarse / fine\"\n";
  // 4 bits less are 16 times the step.
  const claims::FigureResult row = only("check = \"ordering\"\npublished = \">5×\"\n" + cells, kRuns);
  EXPECT_EQ(row.verdict, "reproduced") << row.measured;
  EXPECT_EQ(row.machine, "no");
  EXPECT_LT(row.interval_low.value(), row.measured_value.value());
  EXPECT_LT(row.measured_value.value(), 40);
  const claims::FigureResult wrong = only("check = \"measurement\"\npublished = \"1.5×\"\n" + cells, kRuns);
  EXPECT_EQ(wrong.verdict, "contradicted");
  EXPECT_EQ(wrong.reason, "1.45x to 1.55x would agree");
  EXPECT_EQ(only("check = \"measurement\"\npublished = \"<2×\"\n" + cells, kRuns).reason,
            "less than 2x would agree");
  // No window has room for all of the interval if it ends inside.
  const double middle = *row.measured_value;
  EXPECT_EQ(
      only("check = \"ordering\"\npublished = \">" + std::to_string(middle) + "×\"\n" + cells, kRuns).verdict,
      "inconclusive");
}

TEST_F(Claims, AnOrderingThatWasMeasuredOnceIsInconclusive) {
  const std::string
      seeds = "seeds = [1, 2, 3, 4, 5]\n",
      cells =
          "cells.coarse = { run = \"small\", variant = \"contiguous/q4_0\", metric = \"err_rel_l2\" }\n"
          "cells.fine = { run = \"small\", variant = \"contiguous/q8_0\", metric = \"err_rel_l2\" "
          "}\nmeasured = "
          "\"coarse / fine\"\n";
  std::string once = kRuns;
  once.erase(once.find(seeds), seeds.size());
  const auto of = [&](const std::string& check, const std::string& published, const std::string& runs) {
    return only("check = \"" + check + "\"\npublished = \"" + published + "\"\n" + cells, runs);
  };
  for (const char* published : {">5×", ">100×"}) {  // whichever is ahead
    const claims::FigureResult row = of("ordering", published, once);
    EXPECT_EQ(row.verdict, "inconclusive") << published;
    EXPECT_EQ(row.reason.find("measured once, without an interval"), 0u) << row.reason;
    EXPECT_EQ(row.interval_low, row.measured_value);
  }
  EXPECT_EQ(of("ordering", ">5×", kRuns).verdict, "reproduced");
  EXPECT_EQ(of("ordering", ">100×", kRuns).verdict, "contradicted");
  // A figure with a tolerance is another matter: what is computed has no interval either.
  EXPECT_EQ(of("measurement", ">5×", once).verdict, "reproduced");
}

TEST_F(Claims, ACellThatCannotRunIsNotTestable) {
  const claims::FigureResult row = only(
      "check = \"measurement\"\npublished = \"<1\"\ncells.e = { run = \"small\", variant = \"paged/kivi\", "
      "metric = \"err_rel_l2\" }\n"
      "measured = \"e\"",
      kRuns);
  EXPECT_EQ(row.verdict, "not testable here");
  EXPECT_NE(row.reason.find("unsupported: "), std::string::npos);
}

TEST_F(Claims, SamplesAreSummedAndCountedARepetition) {
  const std::vector<claims::FigureResult> rows = figures(
      "check = \"measurement\"\n"
      "[[claim.figure]]\npublished = \"≤12\"\nmeasured = \"grown\"\n"
      "cells.grown = { run = \"timed\", variant = \"doubling\", seq_len = 200, metric = \"bytes_slack\", "
      "take = \"increases\" }\n"
      "[[claim.figure]]\npublished = \"<1000 s\"\nmeasured = \"total * 1e-6\"\n"
      "cells.total = { run = \"timed\", variant = \"doubling\", seq_len = 200, metric = \"step_us\", take = "
      "\"sum\" }\n"
      "[[claim.figure]]\ncheck = \"growth law\"\npublished = \"O(T^2)\"\ntolerance = \"±0.1\"\nover = { T = "
      "[100, 200] }\nmeasured = \"copied\"\n"
      "cells.copied = { run = \"timed\", variant = \"concat\", seq_len = \"{T}\", metric = \"bytes_copied\" "
      "}",
      kRuns);
  ASSERT_EQ(rows.size(), 3u);
  for (const claims::FigureResult& row : rows) EXPECT_EQ(row.verdict, "reproduced") << row.reason;
  EXPECT_EQ(rows[0].machine, "no");
  EXPECT_EQ(rows[1].machine, "yes");
  // 1, 2, 4, … 256: the first allocation leaves no slack to grow.
  EXPECT_GE(rows[0].measured_value, 3);
  EXPECT_LE(rows[0].measured_value, 8);
}

TEST_F(Claims, QuickLeavesTimesOutAndRunsNothingForThem) {
  const claims::ClaimFile file =
      load(std::string(kRuns) + claim("check = \"ordering\"\npublished = \">1×\"\nmeasured = \"a / b\"\n"
                                      "cells.a = { run = \"timed\", variant = \"concat\", seq_len = 200, "
                                      "metric = \"step_us\", take = \"sum\" }\n"
                                      "cells.b = { run = \"timed\", variant = \"doubling\", seq_len = 200, "
                                      "metric = \"step_us\", take = \"sum\" }"));
  const claims::Reproduction result = run(file, true);
  EXPECT_TRUE(result.finished);
  EXPECT_TRUE(result.figures.empty());
  EXPECT_TRUE(fs::is_empty(folder_ / "out1" / "runs"));
  EXPECT_TRUE(fs::exists(folder_ / "out1" / "claims.csv"));
}

// What is refused is refused in one line, with file, line and key.
class ClaimMistakes : public Claims {
 protected:
  void expect(const std::string& keys, const std::string& part, const std::string& head = "") {
    const std::string message = message_of([&] { figures(keys, head); });
    const bool spec = message.find("spec: ") != std::string::npos;  // shows the place in the spec below
    EXPECT_EQ(message.find('\n') != std::string::npos, spec) << message;
    const bool ran = message.find(" run 'small'") != std::string::npos;
    EXPECT_EQ(fs::exists(folder_ / ("out" + std::to_string(runs_))), ran) << message;
    EXPECT_NE(message.find("paper.toml"), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
};

TEST_F(ClaimMistakes, OfAClaimsKeys) {
  expect("check = \"formula\"\ncomputed = \"1\"", "needs published");
  expect("check = \"guess\"\npublished = \"1\"", "claim.c.check must be one of closed form, formula");
  expect("check = \"formula\"\npublished = \"1\"", "which needs computed");
  expect("check = \"formula\"\npublished = \"1 furlong\"\ncomputed = \"1\"",
         "claim.c.published has the unit 'furlong'");
  expect("check = \"formula\"\npublished = \"1\"\ncomputed = \"1 +\"", "claim.c.computed '1 +'");
  expect("check = \"formula\"\npublished = \"1\"\ncomputed = \"x\"",
         "claim.c.computed has 'x', which is not a name that is known here; known: GB, K, MB");
  expect(
      "check = \"formula\"\npublished = \"1\"\ncomputed = \"a\"\ndefine = { a = \"b + 1\", b = \"2 * a\" }",
      "has 'a', which is defined by itself");
  expect("check = \"formula\"\npublished = \"1\"\ncomputed = \"1\"\ntolerence = \"5 %\"",
         "tolerence is not a key that is known here");
  expect("check = \"formula\"\npublished = 1.5\ncomputed = \"1\"",
         "must be text in quotes or a whole number");
  expect("check = \"formula\"\npublished = \"1\"\ncomputed = \"0 / 0\"", "computed is no number: 0 / 0");
  expect("check = \"closed form\"\npublished = \"1 B\"\nbytes = { c = \"contiguous\" }\ntokens = \"10^30\"",
         "tokens is 1e+30; it must be from 1 to 1e+12");
  expect("check = \"formula\"\npublished = \"{y}\"\ncomputed = \"1\"\ncolumns = [\"x\"]\nrows = [[1]]",
         "has {y}, which is no column");
  expect("check = \"formula\"\npublished = \"1\"\ncomputed = \"1\"\ncolumns = [\"x\"]\nrows = [[1, 2]]",
         "a row of 2 values");
  expect("check = \"closed form\"\npublished = \"1 B\"\nbytes = { c = \"contiguos\" }\ntokens = 1",
         "contiguos");
  expect("check = \"none\"\npublished = \"1\"", "which needs reason");
  expect("check = \"formula\"\npublished = \"1.1×\"\ncomputed = \"1\"\ntolerance = \"20 %\"",
         "has room for 1x");
  expect("check = \"formula\"\npublished = \"1×\"\ncomputed = \"1\"\ntolerance = \"factor 2\"",
         "has room for 1x");
  expect("check = \"formula\"\npublished = \"<2\"\ncomputed = \"1\"\nread_as = \"at most\"",
         "without a sign");
}

TEST_F(ClaimMistakes, OfRunsAndTheirCells) {
  expect(
      "check = \"ordering\"\npublished = \"2×\"\nmeasured = \"a\"\ncells.a = { run = \"small\", metric = "
      "\"err_rel_l2\" }",
      "a bound as published", kRuns);
  expect(
      "check = \"measurement\"\npublished = \"2×\"\nmeasured = \"a\"\ncells.a = { run = \"smal\", metric = "
      "\"err_rel_l2\" }",
      "there is no [run.smal]", kRuns);
  expect(
      "check = \"measurement\"\npublished = \"2×\"\nmeasured = \"a\"\ncells.a = { run = \"small\", metric = "
      "\"step_p50_us\" }",
      "is a time", kRuns);
  expect(
      "check = \"measurement\"\npublished = \"2×\"\nmeasured = \"a\"\ncells.a = { run = \"small\", metric = "
      "\"error\" }",
      "no column of cells.csv: 'error'", kRuns);
  expect(
      "check = \"measurement\"\npublished = \"2×\"\nmeasured = \"a\"\n"
      "cells.a = { run = \"small\", variant = \"contiguous/fp8\", metric = \"err_rel_l2\" }",
      "no cell is run 'small', variant contiguous/fp8; it has the variant contiguous, contiguous/q8_0",
      kRuns);
  expect(
      "check = \"measurement\"\npublished = \"2×\"\nmeasured = \"a\"\ncells.a = { run = \"small\", metric = "
      "\"err_rel_l2\" }",
      "several cells are run 'small'", kRuns);
  expect(
      "check = \"measurement\"\npublished = \"2×\"\nmeasured = \"a\"\ncells.a = { run = \"bad\", metric = "
      "\"err_rel_l2\" }",
      "[run.bad]: ", "[run.bad]\nexperiment = \"budget\"\n[run.bad.sweep]\nvariants = [\"nonsense\"]\n");
  EXPECT_NE(message_of([&] { load("[[claim]]\n"); }).find(":2: [claim[0]] needs id"), std::string::npos);
  EXPECT_NE(message_of([&] { load("no toml"); }).find("paper.toml:2: "), std::string::npos);
}

TEST_F(Claims, TheSummaryCountsASourcesVerdictsAndSaysWhatIsContradicted) {
  const claims::ClaimFile file =
      load(claim("check = \"formula\"\npublished = \"{p}\"\ncomputed = \"2 * n\"\ncolumns = [\"n\", \"p\"]\n"
                 "rows = [[1, \"2\"], [2, \"5\"], [3, \"7\"]]\nnote = \"why so\""));
  const std::string text = claims::claims_summary({file}, run(file).figures);
  EXPECT_NE(text.find("| paper | 1 | 2 | t (2: 5, here 4) |"), std::string::npos) << text;
  EXPECT_NE(text.find("| 1 reproduced, 2 contradicted | why so |"), std::string::npos) << text;
}

TEST_F(Claims, MarkdownEscapesWhatWouldBreakATable) {
  const claims::ClaimFile file =
      load(claim("check = \"formula\"\npublished = \"<5 %\"\ncomputed = \"0.01 || 0\"\nnote = \"a | b\""));
  const std::string page = claims::claims_markdown({file}, run(file).figures);
  EXPECT_NE(page.find("| \\<5 % |"), std::string::npos) << page;
}

}  // namespace
}  // namespace kv
