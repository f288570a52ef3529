// Tables keep every digit that matters and every row whole, whatever interrupts them.
#include "harness/results/results_folder.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <csignal>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>

#include "harness/io/paths.h"
#include "harness/results/benchmark_json.h"
#include "harness/results/csv.h"
#include "tests/message_of.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

struct TestRow {
  std::string cell;
  results::Integer count;
  results::Number value;
  results::Status status = results::Status::kNone;
  std::vector<results::Number> list{{}, {}};
  std::string reason;
};

const results::Schema<TestRow>& test_schema() {
  using R = TestRow;
  static const results::Schema<R> schema("test.csv",
                                         {{"cell", "", &R::cell, "which cell"},
                                          {"count", "tokens", &R::count, "a whole number"},
                                          {"value", "us", &R::value, "a number", {"worth"}},
                                          {"status", "", &R::status, "how it ended"},
                                          {"second", "1", results::ListedNumber<R>{&R::list, 1}, "of a list"},
                                          {"added", "", &R::reason, "of this version", results::Later{}}});
  return schema;
}

const std::string kHeader = "cell,count,value,status,second,added\n";

std::string text_of(double value) { return results::text_of(results::Number(value)); }

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
  std::vector<TestRow> parse(const std::string& text) const {
    write(text);
    return results::read_csv(path_, test_schema());
  }
  std::string copied(const std::string& text) const { return results::csv_text(test_schema(), parse(text)); }
  std::string refused(const std::string& text) const {
    return message_of([&] { parse(text); });
  }

  fs::path folder_, path_;
};

TEST(Value, NumbersComeBack) {
  results::Integer whole;
  for (const int64_t n : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(results::text_of(results::Integer(n)), std::to_string(n));
    EXPECT_TRUE(results::parse(std::to_string(n), whole));
    EXPECT_EQ(whole, n);
  }
  std::mt19937_64 rng(1);
  std::uniform_real_distribution<double> exponent(-300, 300);
  for (int i = 0; i < 1000; ++i) {
    const double value = std::pow(10.0, exponent(rng));
    results::Number back;
    EXPECT_TRUE(results::parse(text_of(value), back));
    EXPECT_NEAR(*back / value, 1.0, 1e-8) << text_of(value);
    EXPECT_EQ(results::text_of(back),
              text_of(value));  // a file that is read and written again stays the same
  }
  EXPECT_EQ(text_of(0.1), "0.1");
  EXPECT_EQ(text_of(123456789), "123456789");
}

TEST(Value, WhatIsNotFiniteIsAbsent) {
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), HUGE_VAL, -HUGE_VAL}) {
    EXPECT_FALSE(results::Number(value));
    EXPECT_EQ(text_of(value), "");
  }
  results::Number number = 1.0;
  EXPECT_FALSE(results::parse("12 us", number));
  EXPECT_TRUE(results::parse("", number));
  EXPECT_EQ(number, results::Number());
  results::Integer integer;
  EXPECT_FALSE(results::parse("1.5", integer));
  results::Status status;
  EXPECT_FALSE(results::parse("okay", status));
  EXPECT_TRUE(results::parse("out_of_memory", status));
  EXPECT_EQ(status, results::Status::kOutOfMemory);
}

// Each kind of step has medians of its own.
TEST(BenchmarkJson, HasTheMedianOfARepetition) {
  std::vector<results::SampleResult> samples;
  for (const double us : {5.0, 1.0, 9.0, 2.0, 4.0}) {
    results::SampleResult& sample = samples.emplace_back();
    sample.cell = "contiguous";
    sample.repetition = 1;
    sample.step_us = us;
  }
  const nlohmann::json report =
      nlohmann::json::parse(results::benchmark_json(samples, {}, {{"cpu", {{"cores", 2}}}}));
  ASSERT_EQ(report["benchmarks"].size(), 1u) << report;
  const nlohmann::json& entry = report["benchmarks"][0];
  EXPECT_DOUBLE_EQ(entry["real_time"].get<double>(), 4.0) << entry;
}

TEST(Schema, FindsFieldsByNameAndAlias) {
  TestRow row;
  row.count = 3;
  row.value = 1.5;
  row.list[1] = 0.25;
  EXPECT_EQ(test_schema().number(row, "count"), results::Number(3.0));
  EXPECT_EQ(test_schema().number(row, "worth"), results::Number(1.5));
  EXPECT_EQ(test_schema().number(row, "second"), results::Number(0.25));
  EXPECT_EQ(test_schema().number(row, "cell"), results::Number());
  EXPECT_EQ(test_schema().text(row, "count"), "3");
  EXPECT_EQ(test_schema().find("valeu"), nullptr);
  EXPECT_EQ(message_of([&] { test_schema().at("valeu"); }),
            "'valeu' is no column of test.csv; `kvlab list columns` names them");
}

TEST(Schema, IsWrittenAsJson) {
  const auto json = nlohmann::json::parse(results::columns_json(test_schema().columns()));
  ASSERT_EQ(json.size(), 6u);
  EXPECT_EQ(json[1]["type"], "integer");
  EXPECT_EQ(json[3]["type"], "text");
  EXPECT_EQ(json[4]["type"], "number");
  EXPECT_EQ(json[2], (nlohmann::json{{"name", "value"},
                                     {"unit", "us"},
                                     {"type", "number"},
                                     {"meaning", "a number"},
                                     {"aliases", {"worth"}}}));
}

// Every column of every table stands once in the schema, with its meaning or below a column that shares it: a
// new metric or experiment may not get this wrong.
template <class Row>
void expect_whole(const results::Schema<Row>& schema) {
  std::set<std::string_view> names;
  EXPECT_FALSE(schema.fields().front().meaning.empty());
  for (const results::Field<Row>& field : schema.fields()) {
    EXPECT_TRUE(names.insert(field.name).second) << schema.table() << " " << field.name;
    for (const std::string_view alias : field.aliases) EXPECT_TRUE(names.insert(alias).second) << alias;
    if (field.name.ends_with("_us")) {
      EXPECT_EQ(field.unit, "us") << field.name;
    }
    if (field.name.starts_with("bytes_")) {
      EXPECT_EQ(field.unit, "bytes") << field.name;
    }
    if (field.name.ends_with("_share")) {
      EXPECT_EQ(field.unit, "1") << field.name;
    }
  }
}

TEST(Schema, OfEveryTableIsWhole) {
  expect_whole(results::cell_schema());
  expect_whole(results::sample_schema());
  expect_whole(results::growth_schema());
  expect_whole(results::position_schema());
  expect_whole(results::text_schema());
  expect_whole(results::moment_schema());
  expect_whole(results::hit_schema());
}

TEST(Schema, HasAColumnForEveryMetric) {
  results::CellResult cell;
  for (size_t i = 0; i < verify::metrics().size(); ++i) {
    cell.metrics[i] = static_cast<double>(i);
    const auto* field = results::cell_schema().find(verify::metrics()[i]->name);
    ASSERT_NE(field, nullptr);
    EXPECT_EQ(field->unit, verify::metrics()[i]->unit);
    EXPECT_EQ(field->number(cell), results::Number(static_cast<double>(i)));
  }
}

TEST_F(Results, CsvQuotes) {
  const std::string rows = "a,1,,ok,,\"x, \"\"y\"\"\nz\"\n,,0.5,,2,\n";
  EXPECT_EQ(copied(kHeader + rows), kHeader + rows);
  EXPECT_EQ(parse(kHeader + rows)[0].reason, "x, \"y\"\nz");
  EXPECT_TRUE(parse("").empty());
  EXPECT_TRUE(parse(kHeader).empty());
}

TEST_F(Results, CsvDropsATornLastLine) {
  const std::string whole = kHeader + "a,1,,,,\n", last = "b,2,,,,\"two\nlines\"\n";
  for (size_t size = 0; size < last.size(); ++size)
    EXPECT_EQ(copied(whole + last.substr(0, size)), whole) << size;
  EXPECT_EQ(copied(whole + last), whole + last);
}

TEST_F(Results, CsvOfAnotherVersionIsRefused) {
  EXPECT_NE(refused("cell,value\na,1\n").find("column 2 is 'value' instead of 'count'"), std::string::npos);
  EXPECT_NE(refused("cell,count,cost,status,second,added\n").find("written by another version"),
            std::string::npos);
  EXPECT_NE(refused("cell,count,value,status,second,added,more\n").find("'more', is not known"),
            std::string::npos);
  EXPECT_NE(refused(kHeader + "a,1\n").find("row 2 has 2 fields instead of 6"), std::string::npos);
  EXPECT_NE(refused(kHeader + "a,\"1\"x,,,,\n").find("not a CSV file"), std::string::npos);
  EXPECT_NE(refused(kHeader + "a,some,,,,\n").find("row 2 has 'some' as its count"), std::string::npos);
}

TEST_F(Results, CsvOfAnEarlierVersionIsRead) {
  EXPECT_EQ(copied("cell,count,worth,status,second\na,1,2,ok,3\n"), kHeader + "a,1,2,ok,3,\n");
}

// A file size limit is a full disk that a test can have.
TEST_F(Results, AppendTakesBackWhatDidNotFit) {
  std::signal(SIGXFSZ, SIG_IGN);
  results::AppendFile file(path_);
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
  results::write_whole(path_, "old\n");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit little{10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &little);
  EXPECT_THROW(results::write_whole(path_, "a longer new text\n"), std::runtime_error);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(read(path_), "old\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

// Every column says what it is, in which unit and where it is filled in.
TEST(Schema, DescribesEveryColumn) {
  const std::set<std::string> known{"decode",     "growth",  "prefill", "batch",    "budget",
                                    "checkpoint", "quality", "recall",  "generate", "stream",
                                    "model",      "replay",  "eval"};
  for (const results::Column& column : results::cell_schema().columns()) {
    EXPECT_FALSE(column.meaning.empty()) << column.name;
    EXPECT_FALSE(column.experiments.empty()) << column.name;
    std::istringstream words{std::string(column.experiments)};
    for (std::string word; words >> word;) EXPECT_TRUE(known.count(word)) << column.name << ": " << word;
    EXPECT_TRUE(column.type != results::Type::kText || column.unit.empty()) << column.name;
  }
}

// Committed runs agree: no experiment fills in a column that does not name it, and no text is unknown.
TEST(Schema, AgreesWithTheCommittedRuns) {
  std::set<std::string> experiments;
  for (const auto& entry : fs::recursive_directory_iterator(io::project_home() / "results")) {
    const std::string path = entry.path().string();
    const bool is_committed =
        path.find("/local/") == std::string::npos && path.find("/reproduce/runs/") == std::string::npos;
    if (entry.path().filename() != "cells.csv" || !is_committed) continue;
    for (const results::CellResult& row : results::read_csv(entry.path(), results::cell_schema())) {
      experiments.insert(row.experiment);
      for (const results::Field<results::CellResult>& field : results::cell_schema().fields()) {
        const std::string text = field.text(row), where = entry.path().string() + ": " + row.cell + ": ";
        if (text.empty()) continue;
        EXPECT_NE((" " + std::string(field.experiments) + " ").find(" " + row.experiment + " "),
                  std::string::npos)
            << where << field.name;
        const bool known = field.values.empty() ||
                           std::find(field.values.begin(), field.values.end(), text) != field.values.end();
        EXPECT_TRUE(known || text == "null" || text == "none") << where << field.name << " = " << text;
      }
    }
  }
  EXPECT_GE(experiments.size(), 9u);
}

// No text is one that pandas, polars, R's readr and data.table, or people, take for a missing value, in any
// case.
TEST(Schema, WritesNoTextThatReadersTakeForMissing) {
  const std::set<std::string> missing{"",    "na",   "n/a",    "#n/a",    "#n/a n/a", "#na",      "<na>",
                                      "nan", "-nan", "null",   "none",    "-",        ".",        "nil",
                                      "inf", "-inf", "1.#ind", "-1.#ind", "1.#qnan",  "-1.#qnan", "?"};
  size_t texts = 0;
  const auto check = [&](const auto& schema) {
    for (const results::Column& column : schema.columns()) {
      for (const std::string_view value : column.values) {
        std::string lower(value);
        std::transform(lower.begin(), lower.end(), lower.begin(),
                       [](unsigned char c) { return std::tolower(c); });
        EXPECT_FALSE(missing.count(lower)) << schema.table() << ": " << column.name << " = " << value;
        ++texts;
      }
    }
  };
  check(results::cell_schema());
  check(results::sample_schema());
  check(results::growth_schema());
  check(results::position_schema());
  check(results::text_schema());
  EXPECT_GT(texts, 30u);
}

results::CellResult cell(const std::string& key) {
  results::CellResult r;
  r.cell = key;
  r.reason = "a \"reason\", with\nall that hurts";
  r.metrics[0] = 0.125;
  return r;
}

TEST_F(Results, ResumeKeepsFinishedCellsAndDropsTheSamplesOfOthers) {
  const fs::path out = folder_ / "out";
  const std::vector<results::CellResult> done{cell("a"), cell("b")};
  const std::vector<results::SampleResult> samples{
      results::SampleResult(cell("a")), results::SampleResult(cell("b")), results::SampleResult(cell("c"))};
  {
    results::ResultsFolder results(out, "config", false);
    results.add_samples(samples);
    results.add_cells(done);
  }
  results::ResultsFolder results(out, "config", true);
  EXPECT_TRUE(results.has_cell("a") && results.has_cell("b"));
  EXPECT_FALSE(results.has_cell("c"));
  EXPECT_EQ(results::csv_text(results::cell_schema(), results.cells()),
            results::csv_text(results::cell_schema(), done));
  EXPECT_EQ(read(out / "columns.json"), results::columns_json(results::cell_schema().columns()));
  EXPECT_EQ(results::read_csv(out / "samples.csv", results::sample_schema()).size(), 2u);
  const std::vector<std::string> b{"b"};
  results.drop_cells(b);
  EXPECT_EQ(results::read_csv(out / "cells.csv", results::cell_schema()).size(), 1u);
  EXPECT_EQ(results::read_csv(out / "samples.csv", results::sample_schema()).size(), 1u);
}

// A sweep point that is measured again leaves nothing of what was measured first.
TEST_F(Results, WhatIsUnfinishedCanBeForgotten) {
  const fs::path out = folder_ / "out";
  results::ResultsFolder results(out, "config", false);
  const std::vector<results::CellResult> done{cell("a")};
  const std::vector<results::SampleResult> samples{results::SampleResult(cell("a")),
                                                   results::SampleResult(cell("b"))};
  results.add_samples(samples);
  results.add_cells(done);
  results.drop_unfinished();
  EXPECT_EQ(results::read_csv(out / "samples.csv", results::sample_schema()).size(), 1u);
  results.add_samples(std::span(samples).last(1));
  EXPECT_EQ(results::read_csv(out / "samples.csv", results::sample_schema()).size(), 2u);
}

TEST_F(Results, OneWriterAFolder) {
  const fs::path out = folder_ / "out";
  {
    results::ResultsFolder first(out, "config", false);
    EXPECT_THROW(results::ResultsFolder(out, "config", true), std::invalid_argument);
  }
  EXPECT_NO_THROW(results::ResultsFolder(out, "config", true));
}

TEST_F(Results, NothingIsLeftOfARunThatCouldNotBegin) {
  const fs::path out = folder_ / "out";
  results::ResultsFolder results(out, "config", false);
  results.discard_if_empty();
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace kv
