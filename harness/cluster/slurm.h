// A sweep as a Slurm array job, as `kvlab sbatch` writes it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace kv::cluster {

struct SlurmOptions {
  std::filesystem::path config, out;  // absolute
  std::filesystem::path home, program;
  std::vector<std::string> run;  // options of `kvlab run` that each shard is given
  int nodes = 1;                 // at once
  int shards = 1;
  std::string partition, time;       // empty: the cluster's default
  std::vector<std::string> options;  // other options of sbatch: "--account=x"
  // Environment variables that the launcher sets for the program: "NAME=value".
  std::vector<std::string> environment;
};

// A task a shard, each alone on its node; a requeued one goes on with --resume.
std::string array_script(const SlurmOptions& options);
// Merges the shards' folders into `out`/merged.
std::string merge_script(const SlurmOptions& options);

// The scripts' paths, and the commands that submit them; `job` is the array's number, or a placeholder for it.
std::filesystem::path array_path(const SlurmOptions& options);
std::filesystem::path merge_path(const SlurmOptions& options);
std::vector<std::string> submit_array(const SlurmOptions& options);
std::vector<std::string> submit_merge(const SlurmOptions& options, const std::string& job);

// A word as a shell reads it back.
std::string quoted(const std::string& word);
std::string command_text(const std::vector<std::string>& words);

}  // namespace kv::cluster
