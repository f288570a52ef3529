#include "harness/cluster/slurm.h"

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <string_view>

namespace kv::cluster {
namespace {

// A line for sbatch. Throws std::invalid_argument for a line break, behind which a command of the script would begin.
std::string directive(const std::string& option) {
  if (std::ranges::any_of(option, [](unsigned char c) { return std::iscntrl(c) != 0; }))
    throw std::invalid_argument("'#SBATCH " + option +
                                "' has a line break or another control character; remove it");
  return "#SBATCH " + option + "\n";
}

std::string head(const SlurmOptions& options, const std::string& name, const std::string& log) {
  std::string text = "#!/bin/sh\n" + directive("--job-name=" + quoted(name)) +
                     directive("--output=" + quoted((options.out / "logs" / log).string())) +
                     directive("--open-mode=append");
  if (!options.partition.empty()) text += directive("--partition=" + options.partition);
  if (!options.time.empty()) text += directive("--time=" + options.time);
  for (const std::string& option : options.options) text += directive(option);
  return text;
}

std::string body(const SlurmOptions& options, const std::vector<std::string>& words) {
  std::string text = "set -eu\nexport KVLAB_HOME=" + quoted(options.home.string()) + "\n";
  for (const std::string& variable : options.environment) {
    const size_t equals = variable.find('=');
    text += "export " + variable.substr(0, equals + 1) + quoted(variable.substr(equals + 1)) + "\n";
  }
  return text + "exec " + command_text(words);
}

}  // namespace

std::string quoted(const std::string& word) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_-./=,:+@%").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

std::string command_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + quoted(word);
  return text;
}

std::string array_script(const SlurmOptions& options) {
  const std::string name = options.config.stem().string(), shards = std::to_string(options.shards);
  // Exclusive, since other work on the node would disturb the times. A task whose node is lost goes back into the queue, where
  // --resume goes on.
  std::string text = head(options, "kvlab-" + name, "shard-%a.txt") + "#SBATCH --array=1-" + shards + "%" +
                     std::to_string(options.nodes) +
                     "\n#SBATCH --nodes=1\n#SBATCH --exclusive\n#SBATCH --requeue\n";
  std::vector<std::string> words{options.program.string(), "run", options.config.string()};
  words.insert(words.end(), options.run.begin(), options.run.end());
  return text + body(options, words) + " --resume --no-plots --shard \"$SLURM_ARRAY_TASK_ID/" + shards +
         "\" --out " + quoted((options.out / "shards").string()) + "/\"$SLURM_ARRAY_TASK_ID\"\n";
}

std::string merge_script(const SlurmOptions& options) {
  std::vector<std::string> words{options.program.string(), "merge"};
  for (int shard = 1; shard <= options.shards; ++shard)
    words.push_back((options.out / "shards" / std::to_string(shard)).string());
  words.insert(words.end(), {"--out", (options.out / "merged").string()});
  return head(options, "kvlab-merge", "merge.txt") + "#SBATCH --ntasks=1\n" + body(options, words) + "\n";
}

std::filesystem::path array_path(const SlurmOptions& options) { return options.out / "array.sh"; }
std::filesystem::path merge_path(const SlurmOptions& options) { return options.out / "merge.sh"; }

std::vector<std::string> submit_array(const SlurmOptions& options) {
  return {"sbatch", "--parsable", array_path(options).string()};
}

std::vector<std::string> submit_merge(const SlurmOptions& options, const std::string& job) {
  return {"sbatch", "--parsable", "--dependency=afterok:" + job, "--kill-on-invalid-dep=yes",
          merge_path(options).string()};
}

}  // namespace kv::cluster
