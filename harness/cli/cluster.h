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
// Returns the exit code: 1 if hosts disagree on what does not depend on them.
int merge(const MergeCommand& options);

struct SbatchCommand {
  std::string config, out;
  std::vector<std::string> set, options;  // of `kvlab run`; of sbatch
  std::string partition, time;
  int nodes = 1, shards = 0;  // 0: as many as nodes
  bool submit = false;
};
void add_options(CLI::App& app, SbatchCommand& options);
// Prints what it would submit; with `submit`, writes and submits it.
int sbatch(const SbatchCommand& options);

struct CheckCommand {
  std::string folder;
  bool add_stages = false;  // in place of the checks
};
void add_options(CLI::App& app, CheckCommand& options);
// Prints what does not hold. Returns the exit code: 1 if anything does not.
int check_results(const CheckCommand& options);

}  // namespace kv::cli
