// `kvlab merge`, `kvlab sbatch` and `kvlab check-results`.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace kv::cli {

struct MergeCommand {
  std::vector<std::string> folders;
  std::string out;
  bool partial = false, no_plots = false;
};
void add_options(CLI::App& app, MergeCommand& options);
// Returns the exit code: 1 if hosts disagree on results that must not depend on them.
int merge(const MergeCommand& options);

struct SbatchCommand {
  std::string config, out;
  std::vector<std::string> set, options;  // for `kvlab run`; for sbatch
  std::string partition, time;
  int nodes = 1, shards = 0;  // 0: one shard a node
  bool submit = false;
};
void add_options(CLI::App& app, SbatchCommand& options);
// Prints the jobs; with `submit`, writes and submits them.
int sbatch(const SbatchCommand& options);

struct CheckCommand {
  std::string folder;
  bool json = false;
};
void add_options(CLI::App& app, CheckCommand& options);
// Prints every violation. Returns the exit code: 1 if there is any.
int check_results(const CheckCommand& options);

}  // namespace kv::cli
