// A results folder as `kvlab merge` takes it: whole, finished, all of it in memory.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/results/table.h"

namespace kv::cluster {

// A text of env.json by its JSON pointer; empty where there is none.
std::string text_at(const nlohmann::json& environment, const char* pointer);

struct Part {
  std::filesystem::path path;
  std::string config;  // the text that ran
  nlohmann::json environment;
  std::vector<results::Row> cells;
  results::Table table;                                              // the columns of its cells.csv
  std::map<const results::Table*, std::vector<results::Row>> sides;  // those that are there
};

// Every cell has a host: its row's, else its folder's. Throws std::invalid_argument for a folder that is unfinished, torn,
// or lacks a file.
Part read_part(const std::filesystem::path& path);

// Throws std::invalid_argument with the difference unless both have one config and one binary, and one machine where they
// share a host.
void require_same_run(const Part& first, const Part& other);
// Throws std::invalid_argument unless the parts are all shards of the sweep.
void require_all_shards(const std::vector<Part>& parts);

}  // namespace kv::cluster
