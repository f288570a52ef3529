// The commands `kvlab run`, `eval`, `summary` and `reproduce`, and the exit codes of all commands.
#pragma once

#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "harness/cli/eval.h"
#include "harness/config/config.h"
#include "harness/results/cell_columns.h"

namespace kv::cli {

// 0: done. kUserError: there is something to set right, as where memory was too small for every cell.
inline constexpr int kCellFailed = 1, kUserError = 2, kStopped = 130;

// `asked`; where that is empty, a folder of this name and the time in results/local.
std::filesystem::path folder_for(const std::string& asked, const std::string& name);
// From the first call of watch_signals() on, SIGINT and SIGTERM ask to stop, and the second one ends the program.
void watch_signals();
bool is_stopped();

struct RunOptions {
  std::string config;
  std::string out;  // empty: a new folder in results/local
  config::Overrides overrides;
  bool resume = false, no_plots = false;
  bool full = false;    // all tables, same as SummaryOptions::full
  std::string shard;    // "2/4"; empty: all
  int list_shards = 0;  // only list the points of this many shards
  bool dry_run = false;
  bool json = false;
};
// Measures, prints, draws. Returns the exit code.
int run(const RunOptions& options);

// Draws the charts of a results folder, if there is a Python for it, whose output goes to `said`. Returns the exit code.
int draw(const std::string& out, std::FILE* said = stdout);

int eval(const EvalOptions& options);

struct SummaryCommand {
  std::string folder;
  bool full = false, json = false;
  bool answers = false;  // prints answers.json alone
};
// Prints, and writes answers.json into the folder.
int print_summary(const SummaryCommand& options);
// The terminal's summary of cells in `folder`.
std::string summary_text(std::span<const results::Row> cells, const std::string& folder, bool full);

struct ReproduceOptions {
  std::vector<std::string> names;  // claim files; with `list`, words; none: all
  std::string out;                 // same as RunOptions::out
  bool list = false, quick = false, tables = false, no_plots = false;
  int threads = 0;
  config::WorkloadConfig workload;  // model, tokenizer and texts
  std::string measure = "1GiB";     // caches up to this size are built, filled and counted
};
int reproduce(const ReproduceOptions& options);

}  // namespace kv::cli
