// Expressions, and claim files from text to every verdict.
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/claims/expression.h"
#include "harness/io/csv.h"
#include "harness/io/paths.h"
#include "tests/harness/claims/claim_files.h"

namespace kv {
namespace {

TEST(Expression, NamesWhatItNeedsAndShowsItsArithmetic) {
  const claims::Expression e("2 * layers * ceil(T / 16) + 1e3");
  EXPECT_EQ(e.names(), (std::vector<std::string>{"T", "layers"}));
  const auto values = [](const std::string& name) { return name == "T" ? 100.0 : 32.0; };
  EXPECT_DOUBLE_EQ(e.value(values), 2 * 32 * 7 + 1000);
  EXPECT_EQ(e.with_numbers(values), "2 * 32 * ceil(100 / 16) + 1e3");
  for (const char* bad : {"2 *", "(1", "f(2)", "1 2"})
    EXPECT_NE(message_of([&] { claims::Expression{bad}; }), "") << bad;
}

const char* const kModel = "[model]\nlayers = 2\nkv_heads = 4\nhead_dim = 64\n";

TEST_F(Claims, AClosedFormIsComputedAndCounted) {
  // 2 tensors x 2 layers x 4 heads x 64 x 100 tokens x 4 B
  const claims::FigureResult row =
      only("check = \"closed form\"\npublished = \"409.6 KB\"\nbytes = { c = \"contiguous\" }\ntokens = 100",
           kModel);
  EXPECT_EQ(row.verdict->name, "reproduced") << row.reason;
  EXPECT_EQ(row.computed_value.value(), 2 * 2 * 4 * 64 * 100 * 4);
  EXPECT_EQ(row.measured_value.value(), row.computed_value.value());
}

TEST_F(Claims, AWrongFigureShowsItsArithmetic) {
  const claims::FigureResult row =
      only("check = \"closed form\"\npublished = \"300 KB\"\nbytes = { c = \"contiguous\" }\ntokens = 100",
           kModel);
  EXPECT_EQ(row.verdict->name, "contradicted");
  EXPECT_EQ(row.reason,
            "2 x 2 layers x 4 KV heads x 64 x 100 tokens x 4 B = 409.6 KB or 400 KiB, the published "
            "figure 26.8 % less");
}

TEST_F(Claims, AFigureInBinaryUnitsIsReproducedAndSaysSo) {
  const claims::FigureResult row =
      only("check = \"formula\"\npublished = \"48 MB\"\ncomputed = \"2 * K * 24576\"");
  EXPECT_EQ(row.verdict->name, "reproduced");
  EXPECT_EQ(row.reason, "with K = 1024 and MB = MiB");
  EXPECT_EQ(row.computed, "48 MiB");
}

TEST_F(Claims, AGigabyteMayBeAThousandMebibytes) {
  const claims::FigureResult row =
      only("check = \"formula\"\npublished = \"4.8 GB\"\ncomputed = \"200 * K * 24576\"");
  EXPECT_EQ(row.verdict->name, "reproduced");
  EXPECT_EQ(row.reason, "with K = 1024 and GB = 1000 MiB");
}

TEST_F(Claims, AFigureCanBeReadAsOneSided) {
  const std::string keys =
      "check = \"formula\"\npublished = \"1×\"\ntolerance = \"10 %\"\nread_as = \"at most\"\n";
  EXPECT_EQ(only(keys + "computed = \"0.65\"").verdict->name, "reproduced");
  EXPECT_EQ(only(keys + "computed = \"1.2\"").verdict->name, "contradicted");
  EXPECT_EQ(only("check = \"formula\"\npublished = \"up to 8×\"\ncomputed = \"3\"").verdict->name,
            "consistent");
}

TEST_F(Claims, ATablesRowsAndFiguresAreFiguresEach) {
  const std::vector<claims::FigureResult> rows = figures(
      "check = \"formula\"\ncolumns = [\"n\", \"square\", \"cube\"]\nrows = [[2, \"4\", \"8\"], [3, \"9\", "
      "\"26\"]]\n"
      "[[claim.figure]]\nname = \"square\"\npublished = \"{square}\"\ncomputed = \"n^2\"\n"
      "[[claim.figure]]\nname = \"cube\"\npublished = \"{cube}\"\ncomputed = \"n^3\"");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[2].statement->name, "3, square");
  EXPECT_EQ(rows[1].verdict->name, "reproduced");
  EXPECT_EQ(rows[3].verdict->name, "contradicted");
  EXPECT_EQ(rows[3].reason, "3^3 = 27, the published figure 3.7 % less");
}

TEST_F(Claims, ChecksOfOneFigureCountOnce) {
  const auto deciding = [&](const std::string& keys) {
    std::vector<std::string> names;
    for (const claims::FigureResult& row : figures("check = \"formula\"\n" + keys)) {
      if (row.decides) names.push_back(row.statement->name + ": " + std::string(row.verdict->name));
    }
    return names;
  };
  using Names = std::vector<std::string>;
  const std::string same =
      "published = \"4\"\n[[claim.figure]]\nname = \"a\"\ncomputed = \"4\"\n[[claim.figure]]\nname = "
      "\"b\"\ncomputed = "
      "\"5\"\n[[claim.figure]]\nname = \"c\"\npublished = \"5\"\ncomputed = \"5\"\n";
  EXPECT_EQ(deciding(same), (Names{"b: contradicted", "c: reproduced"}));  // the worst
  EXPECT_EQ(deciding("reading = true\n" + same),
            (Names{"a: reproduced", "c: reproduced"}));  // of readings the best
  EXPECT_EQ(deciding("reading = true\n" + same +
                     "[[claim.figure]]\nname = \"d\"\nreading = false\ncomputed = \"6\"\n"),
            (Names{"c: reproduced", "d: contradicted"}));
  EXPECT_EQ(
      deciding(
          "[[claim.figure]]\nname = \"a\"\npublished = \"yes\"\ncomputed = \"1\"\n[[claim.figure]]\nname = "
          "\"b\"\npublished = \"no\"\ncomputed = \"0\""),
      (Names{"a: reproduced"}));  // words are one statement
  // A table's cell is a figure of its own, whatever it says.
  EXPECT_EQ(deciding("table = \"T\"\ncolumns = [\"name\"]\nrows = [[\"x\"], [\"y\"]]\npublished = "
                     "\"4\"\ncomputed = \"4\""),
            (Names{"x: reproduced", "y: reproduced"}));
}

TEST_F(Claims, RolesSayWhatDecides) {
  const auto verdicts = [&](const std::string& control) {
    std::string all;
    for (const claims::FigureResult& row : figures(
             "check = \"formula\"\npublished = \"4\"\n[[claim.figure]]\ncomputed = "
             "\"4\"\n[[claim.figure]]\nrole = "
             "\"scope\"\ncomputed = \"5\"\n[[claim.figure]]\nrole = \"control\"\nname = \"n\"\npublished = "
             "\"1\"\ncomputed = \"" +
             control + "\"\n[[claim.figure]]\ncheck = \"sum\"\ncomputed = \"2 + 3\""))
      all += std::string(row.verdict->name) + (row.decides ? "!" : "") + ", ";
    return all;
  };
  EXPECT_EQ(verdicts("1"), "reproduced!, contradicted, reproduced, contradicted, ");
  EXPECT_EQ(verdicts("2"), "not testable here!, contradicted, contradicted, contradicted, ");
}

TEST_F(Claims, ATablesEmptyCellIsNoFigure) {
  const std::vector<claims::FigureResult> rows = figures(
      "check = \"formula\"\ntable = \"Sizes\"\ncolumns = [\"name\", \"n\", \"square\"]\nrows = [[\"two\", 2, "
      "\"4\"], "
      "[\"three\", 3, \"\"]]\n[[claim.figure]]\nname = \"square\"\npublished = \"{square}\"\ncomputed = "
      "\"n^2\"");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].statement->table + "/" + rows[0].statement->row + "/" + rows[0].statement->column,
            "Sizes/two/square");
}

TEST_F(Claims, ATestOfTheProjectDecidesWhatItHolds) {
  const claims::FigureResult row =
      only("check = \"test\"\npublished = \"yes\"\ntest = \"tests/a_test.cc A.B\"");
  EXPECT_EQ(row.verdict->name, "reproduced");
  EXPECT_EQ(row.reason, "held by the test tests/a_test.cc A.B; `./kvlab test` runs it");
}

TEST_F(Claims, OnlyCachesUpToTheLimitAreCounted) {
  load(
      std::string(kModel) +
      claim(
          "check = \"closed form\"\npublished = \"409.6 KB\"\nbytes = { c = \"contiguous\" }\ntokens = 100"));
  EXPECT_TRUE(run(false).figures.at(0).measured_value);
  EXPECT_FALSE(run(false, 400000).figures.at(0).measured_value);
}

TEST_F(Claims, AGrowthLawIsFitted) {
  const std::string keys = "check = \"growth law\"\nover = { T = [16, 256, 4096] }\n";
  EXPECT_EQ(only(keys + "published = \"O(T^2)\"\ncomputed = \"3 * T * (T + 1)\"").verdict->name,
            "reproduced");
  const claims::FigureResult wrong = only(keys + "published = \"O(T)\"\ncomputed = \"T^1.5\"");
  EXPECT_EQ(wrong.verdict->name, "contradicted");
  EXPECT_EQ(wrong.computed, "O(T^1.5)");
  EXPECT_EQ(only(keys + "published = \"O(T)\"\nbytes = { c = \"contiguous\" }\ntokens = \"T\"").measured,
            "O(T^1)");
}

TEST_F(Claims, ARooflineIsTheMostOfARateAndTheLeastOfATime) {
  const auto verdict = [&](const std::string& published, const std::string& bound) {
    return only("check = \"roofline\"\npublished = \"" + published + "\"\ncomputed = \"" + bound + "\"");
  };
  EXPECT_EQ(verdict("~15 tok/s", "27").verdict->name, "consistent");
  EXPECT_EQ(verdict("~15 tok/s", "27").reason, "a bound: 27 tok/s is the most that is possible");
  EXPECT_EQ(verdict("~43 tok/s", "42").verdict->name, "consistent");
  EXPECT_EQ(verdict("~43 tok/s", "36").verdict->name, "contradicted");
  EXPECT_EQ(verdict(">25 tok/s", "38").verdict->name, "consistent");
  EXPECT_EQ(verdict(">8 tok/s", "4").verdict->name, "contradicted");
  EXPECT_EQ(verdict("<8 tok/s", "4").verdict->name, "reproduced");
  EXPECT_EQ(verdict("5 ms", "0.004").verdict->name, "consistent");
  EXPECT_EQ(verdict("5 ms", "0.006").verdict->name, "contradicted");
  EXPECT_EQ(verdict("<5 ms", "0.004").verdict->name, "consistent");
  EXPECT_EQ(verdict("yes", "1 < 2").verdict->name, "consistent");
  EXPECT_EQ(verdict("yes", "2 < 1").verdict->name, "contradicted");
}

TEST_F(Claims, WhatIsTrueByConstructionIsNoReproduction) {
  const std::string keys = "check = \"formula\"\npublished = \"1×\"\nby_construction = \"one over one\"\n";
  EXPECT_EQ(only(keys + "computed = \"1\"").verdict->name, "true by construction");
  EXPECT_EQ(only(keys + "computed = \"1\"").reason, "one over one");
  EXPECT_EQ(only(keys + "computed = \"2\"").verdict->name, "contradicted");
}

TEST_F(Claims, AReplicaThatDisagreesContradictsNothing) {
  const std::string keys = "published = \"2×\"\ncomputed = \"3\"\ncheck = \"formula\"";
  EXPECT_EQ(only(keys).verdict->name, "contradicted");
  EXPECT_EQ(only(keys + "\nreplica = \"qualitative\"").verdict->name, "differs in this replica");
}

TEST_F(Claims, NotTestableGivesItsReason) {
  const claims::FigureResult row =
      only("check = \"none\"\npublished = \"8×\"\nneeds = \"a GPU\"\nreason = \"no such hardware\"");
  EXPECT_EQ(row.verdict->name, "not testable here");
  EXPECT_EQ(row.reason, "needs a GPU: no such hardware");
}

TEST_F(Claims, MeasurementsHaveIntervalsOverSeeds) {
  const std::string cells =
      "cells.coarse = { run = \"small\", variant = \"contiguous/q4_0\", metric = \"err_rel_l2\" }\n"
      "cells.fine = { run = \"small\", variant = \"contiguous/q8_0\", metric = \"err_rel_l2\" }\nmeasured = "
      "\"coarse / fine\"\n";
  // 4 bits less are 16 times the step.
  const claims::FigureResult row = only("check = \"ordering\"\npublished = \">5×\"\n" + cells, kRuns);
  EXPECT_EQ(row.verdict->name, "reproduced") << row.measured;
  EXPECT_EQ(row.statement->depends_on_machine(), false);
  EXPECT_LT(row.interval->low, row.measured_value.value());
  EXPECT_LT(row.measured_value.value(), 40);
  const claims::FigureResult wrong = only("check = \"measurement\"\npublished = \"1.5×\"\n" + cells, kRuns);
  EXPECT_EQ(wrong.verdict->name, "contradicted");
  EXPECT_EQ(wrong.reason, "1.45x to 1.55x would agree");
  EXPECT_EQ(only("check = \"measurement\"\npublished = \"<2×\"\n" + cells, kRuns).reason,
            "less than 2x would agree");
  // No window has room for all of the interval if it ends inside.
  const double middle = *row.measured_value;
  EXPECT_EQ(only("check = \"ordering\"\npublished = \">" + std::to_string(middle) + "×\"\n" + cells, kRuns)
                .verdict->name,
            "inconclusive");
}

TEST_F(Claims, ACommittedRunIsTakenAsItIs) {
  // Read as plain CSV, so that a run measured again needs no other test.
  const io::CsvTable cells =
      io::read_csv(io::project_home() / "results" / "epyc-2core" / "real" / "cells.csv");
  const auto of = [&](const std::string& column) {
    const size_t variant = std::ranges::find(cells.header, "variant") - cells.header.begin();
    const auto row = std::ranges::find(cells.records, "contiguous/q4_0",
                                       [&](const io::CsvRecord& fields) { return fields[variant]; });
    return std::stod(row->at(std::ranges::find(cells.header, column) - cells.header.begin()));
  };
  const claims::FigureResult row =
      only("check = \"measurement\"\npublished = \"" + std::to_string(of("kl_mean") + 1e-3) +
               "\"\nmeasured = \"kl\"\n"
               "cells.kl = { run = \"real\", variant = \"contiguous/q4_0\", experiment = \"quality\", "
               "metric = \"kl_mean\" }",
           "[run.real]\nresults = \"epyc-2core/real\"\n");
  EXPECT_EQ(row.verdict->name, "inconclusive") << row.reason;
  EXPECT_DOUBLE_EQ(row.measured_value.value(), of("kl_mean"));
  EXPECT_DOUBLE_EQ(row.interval->low, of("kl_mean_ci_low"));
  EXPECT_DOUBLE_EQ(row.interval->high, of("kl_mean_ci_high"));
  EXPECT_FALSE(fs::exists(folder_ / "out1" / "runs" / "paper-real"));
}

TEST_F(Claims, AYesThatTheIntervalLeavesOpenSaysSo) {
  const std::string cells =
      "published = \"yes\"\ncells.e = { run = \"small\", variant = \"contiguous/q4_0\", metric = "
      "\"err_rel_l2\" }\n";
  const claims::FigureResult row = only("check = \"measurement\"\npublished = \"<1\"\n" +
                                            cells.substr(cells.find("cells")) + "measured = \"e\"",
                                        kRuns);
  const claims::FigureResult open = only(
      "check = \"measurement\"\n" + cells + "measured = \"e < " + std::to_string(*row.measured_value) + "\"",
      kRuns);
  EXPECT_EQ(open.verdict->name, "inconclusive");
  EXPECT_EQ(open.reason, "this run cannot tell: yes would agree, and its interval has both yes and no");
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
    EXPECT_EQ(row.verdict->name, "inconclusive") << published;
    EXPECT_EQ(row.reason.find("measured once, without an interval"), 0u) << row.reason;
    EXPECT_EQ(row.interval->low, row.measured_value);
  }
  EXPECT_EQ(of("ordering", ">5×", kRuns).verdict->name, "reproduced");
  EXPECT_EQ(of("ordering", ">100×", kRuns).verdict->name, "contradicted");
  // A figure with a tolerance is another matter: what is computed has no interval either.
  EXPECT_EQ(of("measurement", ">5×", once).verdict->name, "reproduced");
}

TEST_F(Claims, ACellThatCannotRunIsNotTestable) {
  const claims::FigureResult row = only(
      "check = \"measurement\"\npublished = \"<1\"\ncells.e = { run = \"small\", variant = \"paged/kivi\", "
      "metric = \"err_rel_l2\" }\n"
      "measured = \"e\"",
      kRuns);
  EXPECT_EQ(row.verdict->name, "not testable here");
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
  for (const claims::FigureResult& row : rows) EXPECT_EQ(row.verdict->name, "reproduced") << row.reason;
  EXPECT_EQ(rows[0].statement->depends_on_machine(), false);
  EXPECT_EQ(rows[1].statement->depends_on_machine(), true);
  // 1, 2, 4, … 256: the first allocation leaves no slack to grow.
  EXPECT_GE(rows[0].measured_value, 3);
  EXPECT_LE(rows[0].measured_value, 8);
}

TEST_F(Claims, QuickLeavesTimesOutAndRunsNothingForThem) {
  load(std::string(kRuns) + claim("check = \"ordering\"\npublished = \">1×\"\nmeasured = \"a / b\"\n"
                                  "cells.a = { run = \"timed\", variant = \"concat\", seq_len = 200, "
                                  "metric = \"step_us\", take = \"sum\" }\n"
                                  "cells.b = { run = \"timed\", variant = \"doubling\", seq_len = 200, "
                                  "metric = \"step_us\", take = \"sum\" }"));
  const claims::Reproduction result = run(true);
  EXPECT_TRUE(result.finished);
  EXPECT_TRUE(result.figures.empty());
  EXPECT_TRUE(fs::is_empty(folder_ / "out1" / "runs"));
  EXPECT_TRUE(fs::exists(folder_ / "out1" / "claims.csv"));
}

}  // namespace
}  // namespace kv
