// A results folder as `kvlab merge` takes it: whole, finished, all of it in memory.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/results/table.h"

namespace kv::cluster {

// The side tables that a folder has, whole.
using Sides = std::map<const results::Table*, std::vector<results::Row>>;
Sides read_sides(const std::filesystem::path& path);
// Rows that a side table lacks, or has too many. `has_samples`: every timed step is in samples.csv or growth.csv, which a
// committed folder leaves out.
std::vector<std::string> differences(const std::vector<results::Row>& cells, const Sides& sides,
                                     bool has_samples);
// CSV files of the folder that no experiment writes.
std::vector<std::string> unknown_tables(const std::filesystem::path& path);

struct Part {
  std::filesystem::path path;
  std::string config;  // the text that ran
  nlohmann::json environment;
  std::vector<results::Row> cells;
  results::Table table;  // the columns of its cells.csv
  Sides sides;
};

// Every cell has a host: its row's, else its folder's. Throws std::invalid_argument for a folder that is unfinished, torn,
// or lacks a file or a cell's rows.
Part read_part(const std::filesystem::path& path);

// Throws std::invalid_argument with the difference unless both have one config and one binary, and one machine where they
// share a host.
void require_same_run(const Part& first, const Part& other);
// Throws std::invalid_argument unless the parts are all shards of the sweep.
void require_all_shards(const std::vector<Part>& parts);

}  // namespace kv::cluster
