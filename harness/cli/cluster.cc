#include "harness/cli/cluster.h"

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/answers/conclusion.h"
#include "harness/cli/commands.h"
#include "harness/cluster/check_results.h"
#include "harness/cluster/merge.h"
#include "harness/cluster/slurm.h"
#include "harness/experiments/experiment.h"
#include "harness/io/paths.h"
#include "harness/io/text.h"
#include "harness/results/append_file.h"

namespace kv::cli {
namespace {

namespace fs = std::filesystem;

// A command's output without its line end. Throws std::invalid_argument if it fails, after its own message is on the
// terminal.
std::string output_of(const std::vector<std::string>& words) {
  const std::string command = cluster::command_text(words);
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) throw std::runtime_error("cannot start " + words.front());
  std::string text;
  std::array<char, 256> block;
  while (std::fgets(block.data(), block.size(), pipe)) text += block.data();
  if (pclose(pipe) != 0) throw std::invalid_argument("this command failed: " + command);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// "12" of "12;cluster".
std::string job_of(const std::string& printed) { return printed.substr(0, printed.find(';')); }

std::vector<std::string> launcher_environment() {
  std::vector<std::string> all;
  for (const char* name : {"GOMP_SPINCOUNT", "GLIBC_TUNABLES"}) {
    if (const char* value = std::getenv(name)) all.push_back(std::string(name) + "=" + value);
  }
  return all;
}

cluster::SlurmOptions slurm_options(const SbatchCommand& command) {
  config::Overrides overrides;
  overrides.set = command.set;
  experiments::load_config(command.config, overrides);  // reports a mistake here rather than on every node
  cluster::SlurmOptions slurm{.config = fs::absolute(io::find_input(command.config, "config")),
                              .out = fs::absolute(command.out),
                              .home = io::project_home(),
                              .program = fs::read_symlink("/proc/self/exe"),
                              .run = {},
                              .nodes = command.nodes,
                              .shards = command.shards > 0 ? command.shards : command.nodes,
                              .partition = command.partition,
                              .time = command.time,
                              .options = command.options,
                              .environment = launcher_environment()};
  for (const std::string& set : command.set) slurm.run.insert(slurm.run.end(), {"--set", set});
  return slurm;
}

}  // namespace

void add_options(CLI::App& app, MergeCommand& options) {
  app.add_option("results", options.folders, "results folders of one config and one binary")->required();
  app.add_option("--out", options.out, "folder to write")->required();
  app.add_flag("--partial", options.partial, "merge although shards are missing");
  app.add_flag("--no-plots", options.no_plots, "leave the charts out");
}

void add_options(CLI::App& app, SbatchCommand& options) {
  app.add_option("config", options.config, "a sweep config, e.g. configs/quickstart.toml")->required();
  app.add_option("--out", options.out, "a new folder that all nodes see: scripts, shards/ and merged/")
      ->required();
  app.add_option("--nodes", options.nodes, "how many nodes measure at once")
      ->required()
      ->check(CLI::Range(1, 65536));
  app.add_option("--shards", options.shards, "parts of the sweep (default: one per node)")
      ->check(CLI::Range(1, 1000));
  app.add_option("--set", options.set, "as for `kvlab run`")->allow_extra_args(false);
  app.add_option("--partition", options.partition, "partition of the cluster, with nodes of one kind");
  app.add_option("--time", options.time, "time limit of a shard, in sbatch's form");
  app.add_option("--sbatch", options.options, "another option of sbatch, e.g. --sbatch=--account=x")
      ->allow_extra_args(false);
  app.add_flag("--submit", options.submit, "write and submit what is printed");
}

void add_options(CLI::App& app, CheckCommand& options) {
  app.add_option("results", options.folder, "a results folder")->required();
  app.add_flag("--json", options.json, "print findings and notes as JSON");
}

int merge(const MergeCommand& options) {
  const cluster::Merged merged = cluster::merge({.folders = {options.folders.begin(), options.folders.end()},
                                                 .out = options.out,
                                                 .partial = options.partial});
  answers::write_answers(options.out);
  for (const std::string& finding : merged.findings)
    std::fprintf(stderr, "finding: hosts disagree: %s\n", io::as_message(finding).c_str());
  std::printf("%zu cells of %zu host%s\nresults: %s\n", merged.cells.size(), merged.hosts.size(),
              merged.hosts.size() == 1 ? "" : "s", options.out.c_str());
  std::fflush(stdout);
  const int drawn = options.no_plots ? 0 : draw(options.out);
  return merged.findings.empty() ? drawn : kCellFailed;
}

int sbatch(const SbatchCommand& command) {
  const cluster::SlurmOptions slurm = slurm_options(command);
  const std::string array = cluster::array_script(slurm), merge = cluster::merge_script(slurm);
  std::printf("%s:\n%s\n%s:\n%s\n", cluster::array_path(slurm).c_str(), array.c_str(),
              cluster::merge_path(slurm).c_str(), merge.c_str());
  if (!command.submit) {
    std::printf("--submit writes these and runs:\n  %s\n  %s\n",
                cluster::command_text(cluster::submit_array(slurm)).c_str(),
                cluster::command_text(cluster::submit_merge(slurm, "ARRAY")).c_str());
    return 0;
  }
  if (fs::exists(slurm.out))
    throw std::invalid_argument("--out " + command.out + " already exists; choose a new folder");
  fs::create_directories(slurm.out / "logs");
  fs::create_directories(slurm.out / "shards");
  results::write_whole(cluster::array_path(slurm), array);
  results::write_whole(cluster::merge_path(slurm), merge);
  const std::string job = job_of(output_of(cluster::submit_array(slurm)));
  const std::string after = job_of(output_of(cluster::submit_merge(slurm, job)));
  std::printf("submitted: array %s, merge %s\nresults: %s\n", job.c_str(), after.c_str(),
              (slurm.out / "merged").c_str());
  return 0;
}

int check_results(const CheckCommand& options) {
  const cluster::Check check = cluster::check_results(options.folder);
  if (options.json) {
    const nlohmann::ordered_json json{
        {"results", options.folder},  {"cells", check.cells},       {"closed_forms", check.closed_forms},
        {"medians", check.medians},   {"ratios", check.ratios},     {"shares", check.shares},
        {"verdicts", check.verdicts}, {"findings", check.findings}, {"notes", check.notes}};
    std::puts(json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
    return check.findings.empty() ? 0 : kCellFailed;
  }
  for (const std::string& finding : check.findings)
    std::printf("finding: %s\n", io::as_message(finding).c_str());
  for (const std::string& note : check.notes) std::printf("note: %s\n", io::as_message(note).c_str());
  std::printf(
      "%s: %zu cells; recomputed: %zu predicted sizes, %zu medians, %zu ratios, %zu shares, %zu verdicts; "
      "%s\n",
      options.folder.c_str(), check.cells, check.closed_forms, check.medians, check.ratios, check.shares,
      check.verdicts,
      check.findings.empty() ? "all agree" : (std::to_string(check.findings.size()) + " findings").c_str());
  return check.findings.empty() ? 0 : kCellFailed;
}

}  // namespace kv::cli
