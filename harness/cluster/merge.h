// Results of one sweep that several machines or shards measured, put together.
//
// Bytes and errors belong to the sweep and must agree; times belong to their host: rows keep it, and nothing is computed
// from times of two.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/results/cell_columns.h"

namespace kv::cluster {

struct MergeOptions {
  std::vector<std::filesystem::path> folders;
  std::filesystem::path out;
  bool partial = false;  // allows missing shards
};

struct Merged {
  std::vector<results::Row> cells;  // sorted by sweep point; within one in the order of their run
  std::vector<std::string> hosts;
  std::vector<std::string> findings;  // bytes and errors that differ from host to host
};

// Writes the folder `out`, whole or not at all. Throws std::invalid_argument, before anything is written, for folders of another config or
// binary, unfinished or torn ones, missing shards, and cells that one host has twice with unlike results.
Merged merge(const MergeOptions& options);

}  // namespace kv::cluster
