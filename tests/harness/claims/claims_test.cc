// Expressions, and claim files from text to every verdict.
#include <gtest/gtest.h>

#include <toml++/toml.h>
#include <algorithm>
#include <map>

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

std::string text_of(const toml::node& node) { return node.value<std::string>().value(); }

void expect_figure(const claims::FigureResult& row, const toml::table& expected) {
  const claims::Statement& of = *row.statement;
  for (const auto& [key, node] : expected) {
    SCOPED_TRACE(std::string(key.str()) + " of " + of.name + ": " + std::string(row.verdict->name) + ", " +
                 row.reason);
    if (key == "verdict")
      EXPECT_EQ(row.verdict->name, text_of(node));
    else if (key == "reason")
      EXPECT_EQ(row.reason, text_of(node));
    else if (key == "says")
      EXPECT_NE(row.reason.find(text_of(node)), std::string::npos);
    else if (key == "computed")
      EXPECT_EQ(row.computed, text_of(node));
    else if (key == "measured")
      EXPECT_EQ(row.measured, text_of(node));
    else if (key == "name")
      EXPECT_EQ(of.name, text_of(node));
    else if (key == "place")
      EXPECT_EQ(of.table + "/" + of.row + "/" + of.column, text_of(node));
    else if (key == "decides")
      EXPECT_EQ(row.decides, node.value<bool>());
    else if (key == "machine")
      EXPECT_EQ(of.depends_on_machine(), node.value<bool>());
    else if (key == "computed_value")
      EXPECT_EQ(row.computed_value, node.value<double>());
    else if (key == "measured_value")
      EXPECT_EQ(row.measured_value, node.value<double>());
    else if (key == "below")
      EXPECT_LT(row.measured_value, node.value<double>());
    else if (key == "above")
      EXPECT_GT(row.measured_value, node.value<double>());
    else
      ADD_FAILURE() << "no such key";
  }
}

TEST_F(Claims, HaveTheVerdictsOfTheTable) {
  const toml::table table = toml::parse_file(KVLAB_SOURCE_DIR "/tests/harness/claims/verdicts.toml");
  const std::map<std::string, std::string> heads{{"", ""}, {"model", kModel}, {"runs", kRuns}};
  for (const toml::node& node : *table["case"].as_array()) {
    const toml::table& one = *node.as_table();
    std::string keys = text_of(*one.get("keys"));
    SCOPED_TRACE(keys);
    for (size_t at = 0; (at = keys.find("; ", at)) != std::string::npos;) keys.replace(at, 2, "\n");
    const auto rows = figures(keys, heads.at(one["head"].value_or(std::string())));
    const toml::array& expected = *one["figures"].as_array();
    ASSERT_EQ(rows.size(), expected.size());
    for (size_t i = 0; i < rows.size(); ++i) expect_figure(rows[i], *expected[i].as_table());
  }
}

TEST_F(Claims, OnlyCachesUpToTheLimitAreCounted) {
  load(
      std::string(kModel) +
      claim(
          "check = \"closed form\"\npublished = \"409.6 KB\"\nbytes = { c = \"contiguous\" }\ntokens = 100"));
  EXPECT_TRUE(run(false).figures.at(0).measured_value);
  EXPECT_FALSE(run(false, 400000).figures.at(0).measured_value);
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
  const claims::FigureResult sure = of("ordering", ">5×", kRuns);
  EXPECT_LT(sure.interval->low, sure.measured_value.value());
  // No window has room for all of the interval if it ends inside.
  const std::string middle = ">" + std::to_string(*sure.measured_value) + "×";
  EXPECT_EQ(of("ordering", middle, kRuns).verdict->name, "inconclusive");
  EXPECT_EQ(of("ordering", ">100×", kRuns).verdict->name, "contradicted");
  // A figure with a tolerance is another matter: what is computed has no interval either.
  EXPECT_EQ(of("measurement", ">5×", once).verdict->name, "reproduced");
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

// Every name has the one before it twice: 2^60 paths, and 60 names.
TEST_F(Claims, ChainsOfDefinitionsAreLookedUpOnceAName) {
  const auto chain = [](int names, const std::string& last) {
    std::string text = "[define]\na0 = 1\n";
    for (int i = 1; i <= names; ++i) {
      const std::string before = "a" + std::to_string(i - 1);
      text += "a" + std::to_string(i) + " = \"(" + before + " + " + before + ") / 2\"\n";
    }
    return std::pair("check = \"formula\"\npublished = \"1\"\ncomputed = \"" + last + "\"", text);
  };
  const auto deep = chain(20000, "a20000");
  const std::string said = message_of([&] { figures(deep.first, deep.second); });
  EXPECT_NE(said.find("more than 100 that are defined by one another"), std::string::npos) << said;
  const auto [keys, head] = chain(60, "a60");
  EXPECT_EQ(only(keys, head).verdict->name, "reproduced");
}

}  // namespace
}  // namespace kv
