// Tables keep every digit that matters and every row whole, whatever interrupts them.
#include "harness/experiments/written_columns.h"
#include "harness/measure/time_columns.h"
#include "harness/results/cell_columns.h"
#include "harness/results/results_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "harness/io/paths.h"
#include "harness/measure/benchmark_json.h"
#include "harness/verify/metrics/list.h"
#include "tests/harness/io/full_disk.h"
#include "tests/message_of.h"
#include "tests/temp.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

constexpr results::IntegerColumn kCount{"count", "tokens", "a whole number"};
constexpr auto kValue = results::NumberColumn{"value", "us", "a number"}.formerly("worth").axis("{} worth");
constexpr results::Column<results::Status> kEnd{"status", "", "how it ended"};
constexpr auto kAdded = results::TextColumn{"added", "", "of this version"}.one_of("old new").stage();

const results::Table kTable{"test.csv", {&results::kCell, &kCount, &kValue, &kEnd, &kAdded}};

const std::string kHeader = "cell,count,value,status,added\n";

std::string text_of(double value) { return results::text_of(results::Number(value)); }

class Results : public testing::Test {
 protected:
  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  static std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<results::Row> parse(const std::string& text) const {
    write(text);
    return results::read_csv(path_, kTable);
  }
  std::string copied(const std::string& text) const { return results::csv_text(kTable, parse(text)); }
  std::string refused(const std::string& text) const {
    return message_of([&] { parse(text); });
  }

  const test::TempFolder folder_;
  const fs::path path_ = folder_ / "table.csv";
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
  std::vector<results::Row> samples;
  for (const double us : {5.0, 1.0, 9.0, 2.0, 4.0}) {
    results::Row& sample = samples.emplace_back();
    sample[results::kCell] = "contiguous";
    sample[measure::kRepetition] = 1;
    sample[measure::kKind] = "step";
    sample[measure::kStepUs] = us;
  }
  const nlohmann::json report =
      nlohmann::json::parse(measure::benchmark_json(samples, {{"cpu", {{"cores", 2}}}}));
  ASSERT_EQ(report["benchmarks"].size(), 1u) << report;
  const nlohmann::json& entry = report["benchmarks"][0];
  EXPECT_DOUBLE_EQ(entry["real_time"].get<double>(), 4.0) << entry;
}

// A growth run's steps, which have no kind, have their sum besides: a doubling's copies are rare, and no median shows them.
TEST(BenchmarkJson, HasTheTimeOfAllAppends) {
  std::vector<results::Row> steps;
  for (const double us : {1.0, 1.0, 40.0}) {
    results::Row& step = steps.emplace_back();
    step[results::kCell] = "doubling";
    step[measure::kRepetition] = 0;
    step[measure::kAppendUs] = us;
    step[measure::kViewUs] = 0.5;
    step[measure::kAttendUs] = 100.0;
    step[measure::kStepUs] = us + 100.5;
  }
  const nlohmann::json entries =
      nlohmann::json::parse(measure::benchmark_json(steps, nlohmann::json::object()))["benchmarks"];
  ASSERT_EQ(entries.size(), 2u) << entries;
  EXPECT_EQ(entries[1]["name"], "doubling append_total");
  EXPECT_DOUBLE_EQ(entries[0]["real_time"].get<double>(), 101.5);
  EXPECT_DOUBLE_EQ(entries[1]["real_time"].get<double>(), 43.5);
}

TEST(Row, HoldsValuesByColumn) {
  results::Row row;
  row[kCount] = 3;
  row[kValue] = 1.5;
  EXPECT_EQ(row.number(kTable.at("count")), results::Number(3.0));
  EXPECT_EQ(row.number(kTable.at("worth")), results::Number(1.5));
  EXPECT_EQ(row.number("value"), results::Number(1.5));
  EXPECT_EQ(row.text(kCount), "3");
  EXPECT_EQ(row.number(kAdded), results::Number());
  EXPECT_EQ(row.text(kAdded), "");
  EXPECT_EQ(std::as_const(row)[kEnd], results::Status::kNone);
  EXPECT_THROW(row.number("count"), std::logic_error) << "a whole number is no other number";
  EXPECT_EQ(kTable.find("valeu"), nullptr);
  EXPECT_EQ(message_of([&] { kTable.at("valeu"); }),
            "'valeu' is no column of test.csv; `kvlab list columns` names them");
}

TEST(Table, IsDescribedAsJson) {
  const auto json = nlohmann::json::parse(results::columns_json(kTable, {{"value", {"decode", "growth"}}}));
  ASSERT_EQ(json.size(), 5u);
  EXPECT_EQ(json[1]["type"], "integer");
  EXPECT_EQ(json[3]["type"], "text");
  EXPECT_EQ(json[2], (nlohmann::json{{"name", "value"},
                                     {"unit", "us"},
                                     {"type", "number"},
                                     {"meaning", "a number"},
                                     {"aliases", {"worth"}},
                                     {"experiments", {"decode", "growth"}},
                                     {"axis", true},
                                     {"title", "{} worth"}}));
  EXPECT_EQ(json[4]["values"], (nlohmann::json{"old", "new"}));
  EXPECT_EQ(json[4]["stage"], true);
}

// A column stands once in a table, and its name says its unit.
void expect_whole(const results::Table& table) {
  std::set<std::string> names;
  for (const results::AnyColumn* column : table.columns) {
    const std::string name(column->name);
    EXPECT_TRUE(names.insert(name).second) << table.file << " " << name;
    for (const std::string& alias : results::words_of(column->aliases))
      EXPECT_TRUE(names.insert(alias).second);
    EXPECT_FALSE(column->meaning.empty()) << name;
    const bool is_text = column->type == results::Type::kText || column->type == results::Type::kStatus;
    EXPECT_TRUE(!is_text || column->unit.empty()) << name;
    if (name.ends_with("_us")) {
      EXPECT_EQ(column->unit, "us") << name;
    }
    if (name.starts_with("bytes_")) {
      EXPECT_EQ(column->unit, "bytes") << name;
    }
    if (name.ends_with("_share")) {
      EXPECT_EQ(column->unit, "1") << name;
    }
  }
}

TEST(Table, OfEveryExperimentIsWhole) {
  expect_whole(experiments::cell_table());
  for (const results::Table* side : experiments::side_tables()) {
    expect_whole(*side);
    EXPECT_NE(side->find("host"), nullptr) << side->file << ": merging could not tell machines apart";
    EXPECT_TRUE(side->present_if || side->find("step_us")) << side->file << ": nobody could miss its rows";
  }
  EXPECT_GE(experiments::side_tables().size(), 6u);
}

TEST(Table, HasAColumnForEveryMetric) {
  for (const verify::Metric* metric : verify::metrics())
    EXPECT_EQ(experiments::cell_table().find(metric->column.name), &metric->column);
}

TEST_F(Results, CsvQuotes) {
  const std::string rows = "a,1,,ok,\"x, \"\"y\"\"\nz\"\n,,0.5,,\n";
  EXPECT_EQ(copied(kHeader + rows), kHeader + rows);
  EXPECT_EQ(parse(kHeader + rows)[0][kAdded], "x, \"y\"\nz");
  EXPECT_TRUE(parse("").empty());
  EXPECT_TRUE(parse(kHeader).empty());
}

TEST_F(Results, CsvKeepsSpacesAroundATextAndDropsThoseAroundTheTable) {
  const std::string rows = "a,,,,\" all\t\"\nb,,,,\" \"\nc,,,,in side\n";
  EXPECT_EQ(copied(kHeader + rows), kHeader + rows);
  EXPECT_EQ(parse(kHeader + rows)[0][kAdded], " all\t");
  EXPECT_EQ(copied("\xEF\xBB\xBF" + kHeader + rows + "\r\n \n"), kHeader + rows);
}

TEST_F(Results, CsvDropsATornLastLine) {
  const std::string whole = kHeader + "a,1,,,\n", last = "b,2,,,\"two\nlines\"\n";
  for (size_t size = 0; size < last.size(); ++size)
    EXPECT_EQ(copied(whole + last.substr(0, size)), whole) << size;
  EXPECT_EQ(copied(whole + last), whole + last);
}

TEST_F(Results, CsvOfAnotherVersionIsRefused) {
  EXPECT_NE(refused("count,value\n1,2\n").find("lacks the column 'cell'"), std::string::npos);
  EXPECT_NE(refused("cell,count,count\na,1,2\n").find("has the column 'count' twice"), std::string::npos);
  EXPECT_NE(
      refused("cell,count,cost\n").find("column 3, 'cost', is not known; it was written by another version"),
      std::string::npos);
  EXPECT_NE(refused(kHeader + "a,1\n").find("row 2 has 2 fields instead of 5"), std::string::npos);
  EXPECT_NE(refused(kHeader + "a,\"1\"x,,,\n").find("not a CSV file"), std::string::npos);
  EXPECT_NE(refused(kHeader + "a,some,,,\n").find("row 2 has 'some' as its count"), std::string::npos);
}

TEST_F(Results, CsvOfAnotherRunOrVersionIsRead) {
  EXPECT_EQ(copied("cell,status,worth,count\na,ok,2,1\n"), kHeader + "a,1,2,ok,\n");
}

TEST_F(Results, AppendTakesBackWhatDidNotFit) {
  results::AppendFile file(path_);
  file.append("first\n");
  {
    const test::FullDisk full(10);
    EXPECT_THROW(file.append("second\n"), std::runtime_error);
  }
  EXPECT_EQ(read(path_), "first\n");
  file.append("third\n");
  EXPECT_EQ(read(path_), "first\nthird\n");
}

TEST_F(Results, WriteWholeLeavesTheOldFileWhereTheDiskRefuses) {
  results::write_whole(path_, "old\n");
  {
    const test::FullDisk full(10);
    EXPECT_THROW(results::write_whole(path_, "a longer new text\n"), std::runtime_error);
  }
  EXPECT_EQ(read(path_), "old\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1);
}

// Committed runs hold no column that their experiment does not declare, and no text that is none of the column's.
TEST(Table, AgreesWithTheCommittedRuns) {
  std::set<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(io::project_home() / "results")) {
    const std::string path = entry.path().string();
    const auto is_in = [&](const char* folder) { return path.find(folder) != std::string::npos; };
    const bool is_run = fs::exists(entry.path().parent_path() / "columns.json");
    if (!path.ends_with("/cells.csv") || is_in("/local/") || is_in("/reproduce/runs/") || !is_run) continue;
    for (const results::Row& row : results::read_csv(entry.path(), experiments::cell_table())) {
      const std::string& experiment = row[results::kExperiment];
      found.insert(experiment);
      std::set<std::string_view> declared;
      for (const experiments::ColumnGroup& group : experiments::experiment_named(experiment).columns)
        for (const results::AnyColumn* column : group.columns) declared.insert(column->name);
      for (const results::AnyColumn* column : experiments::cell_table().columns) {
        const std::string text = row.text(*column), where = path + ": " + row[results::kCell] + ": ";
        if (text.empty()) continue;
        EXPECT_TRUE(declared.contains(column->name)) << where << column->name;
        const std::vector<std::string> values = results::words_of(column->values);
        const bool known = values.empty() || std::ranges::count(values, text) > 0;
        EXPECT_TRUE(known || text == "null" || text == "none") << where << column->name << " = " << text;
      }
    }
  }
  EXPECT_GE(found.size(), 9u);
}

// No text is one that pandas, polars, R's readr and data.table, or people, take for a missing value, in any
// case.
TEST(Schema, WritesNoTextThatReadersTakeForMissing) {
  const std::set<std::string> missing{"",    "na",   "n/a",    "#n/a",    "#n/a n/a", "#na",      "<na>",
                                      "nan", "-nan", "null",   "none",    "-",        ".",        "nil",
                                      "inf", "-inf", "1.#ind", "-1.#ind", "1.#qnan",  "-1.#qnan", "?"};
  size_t texts = 0;
  const auto check = [&](const results::Table& table) {
    for (const results::AnyColumn* column : table.columns) {
      for (const std::string& value : results::words_of(column->values)) {
        std::string lower = value;
        std::transform(lower.begin(), lower.end(), lower.begin(),
                       [](unsigned char c) { return std::tolower(c); });
        EXPECT_FALSE(missing.count(lower)) << table.file << ": " << column->name << " = " << value;
        ++texts;
      }
    }
  };
  check(experiments::cell_table());
  for (const results::Table* side : experiments::side_tables()) check(*side);
  EXPECT_GT(texts, 30u);
}

const results::Layout kLayout{
    .cells = {"cells.csv", {&results::kCell, &results::kReason, &verify::metric::rel_l2.column}},
    .sides = {&measure::kSamples},
    .columns_json = "[]\n"};

results::Row cell(const std::string& key) {
  results::Row r;
  r[results::kCell] = key;
  r[results::kReason] = "a \"reason\", with\nall that hurts";
  r.number("err_rel_l2") = 0.125;
  return r;
}

TEST_F(Results, ResumeKeepsFinishedCellsAndDropsTheSamplesOfOthers) {
  const fs::path out = folder_ / "out";
  const std::vector<results::Row> done{cell("a"), cell("b")};
  const std::vector<results::Row> samples{cell("a"), cell("b"), cell("c")};
  {
    results::ResultsFolder results(out, "config", kLayout, false);
    results.add(measure::kSamples, samples);
    results.add_cells(done);
  }
  results::ResultsFolder results(out, "config", kLayout, true);
  EXPECT_TRUE(results.find_cell("a") && results.find_cell("b"));
  EXPECT_FALSE(results.find_cell("c"));
  EXPECT_EQ(results::csv_text(kLayout.cells, results.cells()), results::csv_text(kLayout.cells, done));
  EXPECT_EQ(read(out / "columns.json"), "[]\n");
  EXPECT_EQ(results::read_csv(out / "samples.csv", measure::kSamples).size(), 2u);
  const std::vector<std::string> b{"b"};
  results.drop_cells(b);
  EXPECT_EQ(results::read_csv(out / "cells.csv", kLayout.cells).size(), 1u);
  EXPECT_EQ(results::read_csv(out / "samples.csv", measure::kSamples).size(), 1u);
}

// A sweep point that is measured again leaves nothing of what was measured first.
TEST_F(Results, WhatIsUnfinishedCanBeForgotten) {
  const fs::path out = folder_ / "out";
  results::ResultsFolder results(out, "config", kLayout, false);
  const std::vector<results::Row> done{cell("a")};
  const std::vector<results::Row> samples{cell("a"), cell("b")};
  results.add(measure::kSamples, samples);
  results.add_cells(done);
  results.drop_unfinished();
  EXPECT_EQ(results::read_csv(out / "samples.csv", measure::kSamples).size(), 1u);
  results.add(measure::kSamples, std::span(samples).last(1));
  EXPECT_EQ(results::read_csv(out / "samples.csv", measure::kSamples).size(), 2u);
}

TEST_F(Results, OneWriterAFolder) {
  const fs::path out = folder_ / "out";
  {
    results::ResultsFolder first(out, "config", kLayout, false);
    EXPECT_THROW(results::ResultsFolder(out, "config", kLayout, true), std::invalid_argument);
  }
  EXPECT_NO_THROW(results::ResultsFolder(out, "config", kLayout, true));
}

TEST_F(Results, NothingIsLeftOfARunThatCouldNotBegin) {
  const fs::path out = folder_ / "out";
  results::ResultsFolder results(out, "config", kLayout, false);
  results.discard_if_empty();
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace kv
