// Tables keep every digit that matters and every row whole, whatever interrupts them.
#include "harness/results.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <stdexcept>

namespace kv {
namespace {

namespace fs = std::filesystem;

constexpr Column kColumns[] = {{"cell", ""}, {"value", ""}, {"reason", ""}};
const std::string kHeader = "cell,value,reason\n";

class Results : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "kvlab-results-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = folder_ / "table.csv";
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  static std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<std::vector<std::string>> parse(const std::string& text) const {
    write(text);
    std::vector<std::vector<std::string>> rows;
    for (const Row& r : read_csv(path_, kColumns)) rows.push_back(r.fields());
    return rows;
  }

  fs::path folder_, path_;
};

using Rows = std::vector<std::vector<std::string>>;

TEST(Row, NumbersComeBack) {
  Row r(kColumns);
  for (const int64_t n : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    r.set("value", n);
    EXPECT_EQ(r.text("value"), std::to_string(n));
  }
  std::mt19937_64 rng(1);
  std::uniform_real_distribution<double> exponent(-300, 300);
  for (int i = 0; i < 1000; ++i) {
    const double value = std::pow(10.0, exponent(rng));
    r.set("value", value);
    EXPECT_NEAR(*r.number("value") / value, 1.0, 1e-8) << r.text("value");
  }
  r.set("value", 0.1);
  EXPECT_EQ(r.text("value"), "0.1");
}

TEST(Row, WhatIsNotFiniteIsEmptyAndNoNumber) {
  Row r(kColumns);
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), HUGE_VAL, -HUGE_VAL}) {
    r.set("value", 1.0);
    r.set("value", value);
    EXPECT_EQ(r.text("value"), "");
    EXPECT_EQ(r.number("value"), std::nullopt);
  }
  r.set("value", "12 us");
  EXPECT_EQ(r.number("value"), std::nullopt);
}

TEST(Row, AnUnknownColumnIsABug) {
  Row r(kColumns);
  EXPECT_THROW(r.set("valeu", 1), std::logic_error);
  EXPECT_THROW(r.text("valeu"), std::logic_error);
}

TEST_F(Results, CsvQuotes) {
  EXPECT_EQ(parse(kHeader + "a,1,\"x, \"\"y\"\"\nz\"\n,,\n"),
            (Rows{{"a", "1", "x, \"y\"\nz"}, {"", "", ""}}));
  EXPECT_EQ(parse(""), Rows{});
  EXPECT_EQ(parse(kHeader), Rows{});
}

TEST_F(Results, CsvDropsATornLastLine) {
  const std::string whole = kHeader + "a,1,\n";
  const std::string last = "b,2,\"two\nlines\"\n";
  for (size_t size = 0; size < last.size(); ++size) {
    EXPECT_EQ(parse(whole + last.substr(0, size)), (Rows{{"a", "1", ""}})) << size;
  }
  EXPECT_EQ(parse(whole + last), (Rows{{"a", "1", ""}, {"b", "2", "two\nlines"}}));
}

TEST_F(Results, CsvOfAnotherVersionIsRefused) {
  EXPECT_THROW(parse("cell,value\na,1\n"), std::invalid_argument);
  EXPECT_THROW(parse("cell,worth,reason\na,1,\n"), std::invalid_argument);
  EXPECT_THROW(parse(kHeader + "a,1\n"), std::invalid_argument);
  EXPECT_THROW(parse(kHeader + "a,\"1\"x,\n"), std::invalid_argument);
}

// A file size limit is a full disk that a test can have.
TEST_F(Results, AppendTakesBackWhatDidNotFit) {
  std::signal(SIGXFSZ, SIG_IGN);
  AppendFile file(path_);
  file.append("first\n");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit little{10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &little);
  EXPECT_THROW(file.append("second\n"), std::runtime_error);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(read(path_), "first\n");
  file.append("third\n");
  EXPECT_EQ(read(path_), "first\nthird\n");
}

TEST_F(Results, WriteWholeLeavesTheOldFileWhereTheDiskRefuses) {
  std::signal(SIGXFSZ, SIG_IGN);
  write_whole(path_, "old\n");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit little{10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &little);
  EXPECT_THROW(write_whole(path_, "a longer new text\n"), std::runtime_error);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(read(path_), "old\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

Row cell(const std::string& key) {
  Row r(cell_columns());
  r.set("cell", key);
  r.set("reason", "a \"reason\", with\nall that hurts");
  return r;
}
Row sample(const std::string& key) {
  Row r(sample_columns());
  r.set("cell", key);
  return r;
}

TEST_F(Results, ResumeKeepsFinishedCellsAndDropsTheSamplesOfOthers) {
  const fs::path out = folder_ / "out";
  const std::vector<Row> done{cell("a"), cell("b")}, samples{sample("a"), sample("b"), sample("c")};
  {
    ResultsFolder results(out, "config", false);
    results.add_samples(samples);
    results.add_cells(done);
  }
  ResultsFolder results(out, "config", true);
  EXPECT_TRUE(results.has_cell("a") && results.has_cell("b"));
  EXPECT_FALSE(results.has_cell("c"));
  EXPECT_EQ(results.cells()[0].fields(), done[0].fields());
  EXPECT_EQ(read_csv(out / "samples.csv", sample_columns()).size(), 2u);
  const std::vector<std::string> b{"b"};
  results.drop_cells(b);
  EXPECT_EQ(read_csv(out / "cells.csv", cell_columns()).size(), 1u);
  EXPECT_EQ(read_csv(out / "samples.csv", sample_columns()).size(), 1u);
}

TEST_F(Results, OneWriterAFolder) {
  const fs::path out = folder_ / "out";
  {
    ResultsFolder first(out, "config", false);
    EXPECT_THROW(ResultsFolder(out, "config", true), std::invalid_argument);
  }
  EXPECT_NO_THROW(ResultsFolder(out, "config", true));
}

TEST_F(Results, NothingIsLeftOfARunThatCouldNotBegin) {
  const fs::path out = folder_ / "out";
  ResultsFolder results(out, "config", false);
  results.discard_if_empty();
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace kv
