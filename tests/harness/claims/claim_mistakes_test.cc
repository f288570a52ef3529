// Mistakes in claim files.
#include "tests/harness/claims/claim_files.h"

namespace kv {
namespace {

// Every refusal is one line with file, line and key.
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
  expect("check = \"guess\"\npublished = \"1\"", "claim.c.check is 'guess'; known: closed form, formula");
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
  expect("check = \"none\"\npublished = \"1\"", "which needs needs and reason");
  expect("check = \"none\"\npublished = \"1\"\nneeds = \"sinks\"\nreason = \"r\"",
         "claim.c.needs is 'sinks'; known: a GPU, a GPU of Apple's");
  expect("check = \"formula\"\npublished = \"1\"\ncomputed = \"1\"\nrole = \"scop\"",
         "claim.c.role is 'scop'; did you mean 'scope'? Known: decides, control, scope");
  expect("check = \"formula\"\npublished = \"1\"\ncomputed = \"1\"\nrole = \"scope\"",
         "has no check that decides");
  expect("check = \"test\"\npublished = \"1\"\ntest = \"t\"", "which needs test, and yes or no as published");
  expect("check = \"formula\"\npublished = \"{x}\"\ncomputed = \"1\"\ncolumns = [\"x\"]\nrows = [[\"\"]]",
         "has no figure: published is empty in every row");
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
      "\"read_gbps\" }",
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
  expect("check = \"formula\"\npublished = \"1\"\ncomputed = \"1\"",
         "run.gone.results names no committed run: there is no results/nowhere/cells.csv",
         "[run.gone]\nresults = \"nowhere\"\n");
  expect("check = \"formula\"\npublished = \"1\"\ncomputed = \"1\"", "seeds is not a key",
         "[run.both]\nresults = \"epyc-2core/real\"\nseeds = [1]\n");
  EXPECT_NE(message_of([&] { load("[[claim]]\n"); }).find(":2: [claim[0]] needs id"), std::string::npos);
  EXPECT_NE(message_of([&] { load("no toml"); }).find("paper.toml:2: "), std::string::npos);
}

}  // namespace
}  // namespace kv
