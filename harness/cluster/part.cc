#include "harness/cluster/part.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <stdexcept>

#include "harness/experiments/shard.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/json.h"
#include "harness/measure/sample_columns.h"
#include "harness/measure/time_columns.h"
#include "harness/results/cell_columns.h"
#include "harness/results/results_folder.h"
#include "harness/results/table.h"

namespace kv::cluster {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFinish = "; `kvlab run` with --resume finishes it";

std::vector<results::Row> read_whole_table(const fs::path& path, const results::Table& table) {
  const std::string text = results::read_whole(path);
  if (text.empty()) throw std::invalid_argument(path.string() + " is empty or missing" + kFinish);
  if (text.back() != '\n')
    throw std::invalid_argument(path.string() + ": the last line is torn (no line end)" + kFinish);
  return results::read_csv(path, table);
}

// Cells that state how many steps were timed have as many in the side tables: a file may be cut between two lines.
void require_all_samples(const Part& part) {
  std::map<std::string, int64_t> counts;
  for (const auto& [table, rows] : part.sides) {
    if (!table->find(measure::kStepUs.name)) continue;
    for (const results::Row& row : rows)
      counts[row[results::kCell]] += row[measure::kKind].empty() || row[measure::kKind] == "step";
  }
  for (const results::Row& row : part.cells) {
    if (!experiments::experiment_named(row[results::kExperiment]).prompt_tokens) continue;
    const auto found = counts.find(row[results::kCell]);
    const int64_t stated = row[measure::kSampleCount].value_or(0);
    if (stated == 0 || (found != counts.end() && found->second == stated)) continue;
    throw std::invalid_argument(part.path.string() + ": '" + row[results::kCell] + "' has " +
                                std::to_string(stated) + " steps, but samples.csv and growth.csv have " +
                                std::to_string(found == counts.end() ? 0 : found->second) + " of them");
  }
}

std::set<std::string> hosts_of(const Part& part) {
  std::set<std::string> hosts;
  for (const results::Row& row : part.cells) hosts.insert(row[results::kHost]);
  return hosts;
}

}  // namespace

std::string text_at(const nlohmann::json& environment, const char* pointer) {
  const nlohmann::json::json_pointer field(pointer);
  if (!environment.contains(field) || !environment[field].is_string()) return "";
  return environment[field].get<std::string>();
}

Part read_part(const fs::path& path) {
  if (!fs::exists(path / "config.toml") || !fs::exists(path / "cells.csv"))
    throw std::invalid_argument(path.string() +
                                " is no results folder of `kvlab run`: it needs config.toml and cells.csv");
  Part part{.path = path,
            .config = results::read_whole(path / "config.toml"),
            .environment = results::environment_in(path),
            .cells = read_whole_table(path / "cells.csv", experiments::cell_table()),
            .table = results::table_in(path / "cells.csv", experiments::cell_table()),
            .sides = {}};
  for (const results::Table* side : experiments::side_tables()) {
    if (fs::exists(path / side->file)) part.sides[side] = read_whole_table(path / side->file, *side);
  }
  if (!part.environment.is_object())
    throw std::invalid_argument((path / "env.json").string() + " is missing or no JSON object");
  if (text_at(part.environment, "/finished").empty())
    throw std::invalid_argument(path.string() + " is not finished" + kFinish);
  require_all_samples(part);
  std::string host = text_at(part.environment, "/host");
  if (host.empty()) host = text_at(part.environment, "/cpu/model");
  for (results::Row& row : part.cells) {
    if (row[results::kHost].empty()) row[results::kHost] = host;
  }
  return part;
}

void require_same_run(const Part& first, const Part& other) {
  const std::string both = other.path.string() + " and " + first.path.string();
  if (other.config != first.config)
    throw std::invalid_argument(both + " are of two configs: their config.toml differ");
  constexpr std::array kBinary{"/kvlab/version", "/kvlab/git_commit", "/kvlab/git_dirty",
                               "/kvlab/binary",  "/compiler",         "/flags"};
  const std::string binary = results::environment_differences(first.environment, other.environment, kBinary);
  if (!binary.empty()) throw std::invalid_argument(both + " are of two binaries: " + binary);
  const std::set<std::string> hosts = hosts_of(first);
  if (!std::ranges::any_of(hosts_of(other), [&](const std::string& host) { return hosts.contains(host); }))
    return;
  constexpr std::array kMachine{"/cpu/model", "/isa", "/device/name", "/threads"};
  const std::string machine =
      results::environment_differences(first.environment, other.environment, kMachine);
  if (!machine.empty())
    throw std::invalid_argument(both + " name one host but are of two machines: " + machine);
}

void require_all_shards(const std::vector<Part>& parts) {
  std::map<int, std::set<int>> indices;  // by the number of shards
  for (const Part& part : parts) {
    const std::string text = text_at(part.environment, "/shard");
    const experiments::Shard shard = text.empty() ? experiments::Shard{} : experiments::parse_shard(text);
    indices[shard.of].insert(shard.index);
  }
  std::string missing;
  for (const auto& [of, found] : indices) {
    if (std::ssize(found) == of) return;
    for (int i = 1; i <= of; ++i) {
      if (!found.contains(i)) missing += (missing.empty() ? "" : ", ") + experiments::Shard{i, of}.text();
    }
  }
  throw std::invalid_argument("these folders are not all of the sweep: shards " + missing +
                              " are missing; --partial merges what is there");
}

}  // namespace kv::cluster
