#include "harness/cluster/part.h"

#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>

#include "harness/experiments/shard.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/json.h"
#include "harness/measure/time_columns.h"
#include "harness/results/cell_columns.h"
#include "harness/results/results_folder.h"

namespace kv::cluster {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFinish = "; `kvlab run` with --resume finishes it";

std::vector<results::Row> read_whole_table(const fs::path& path, const results::Table& table) {
  const std::string text = results::read_whole(path);
  if (text.empty()) throw std::invalid_argument(path.string() + " is empty or missing" + kFinish);
  if (text.back() != '\n')
    throw std::invalid_argument(path.string() + ": the last line is incomplete (no line end)" + kFinish);
  return results::read_csv(path, table);
}

// Rows of a side table name their host only where the folder has cells of several.
using CellOfHost = std::pair<std::string, std::string>;
CellOfHost named(const results::Row& row) { return {row[results::kCell], row[results::kHost]}; }

// Cells that state how many steps were timed have as many in the side tables, and those that state another time have samples of it:
// a file may be cut between two lines.
void compare_samples(const std::vector<results::Row>& cells, const Sides& sides,
                     std::vector<std::string>& findings) {
  std::map<std::string, std::map<CellOfHost, int64_t>> counts;  // by kind
  for (const auto& [table, rows] : sides) {
    if (!table->find(measure::kStepUs.name)) continue;
    for (const results::Row& row : rows) {
      const std::string& kind = row[measure::kKind];
      ++counts[kind.empty() ? "step" : kind][named(row)];
    }
  }
  const std::vector<std::string> kinds = results::words_of(measure::kKind.values);
  for (const results::Row& row : cells) {
    const auto counted = [&](const std::string& kind) {
      return counts[kind][named(row)] + counts[kind][{row[results::kCell], ""}];
    };
    for (const std::string& kind : kinds) {
      const auto stated = [&](const char* p50) {
        return experiments::cell_table().find(kind + p50) && row.number(kind + p50).has_value();
      };
      if ((stated("_p50_us") || stated("_attend_p50_us")) && counted(kind) == 0)
        findings.push_back("'" + row[results::kCell] + "' has a time of the kind " + kind +
                           ", but no samples of it in samples.csv or growth.csv");
    }
    const experiments::Experiment* experiment = experiments::find_experiment(row[results::kExperiment]);
    if (!experiment || !experiment->tables_every_step) continue;
    const int64_t stated = row[measure::kSampleCount].value_or(0);
    if (stated != 0 && counted("step") != stated)
      findings.push_back("'" + row[results::kCell] + "' has " + std::to_string(stated) +
                         " steps, but samples.csv and growth.csv have " + std::to_string(counted("step")) +
                         " of them");
  }
}

// Cells that tell of rows in a table have some there, and no row is of another cell.
void compare_rows(const std::vector<results::Row>& cells, const results::Table& table, const Sides& sides,
                  std::vector<std::string>& findings) {
  const std::string file(table.file);
  std::set<CellOfHost> there, known;
  if (const auto side = sides.find(&table); side != sides.end())
    for (const results::Row& row : side->second) there.insert(named(row));
  for (const results::Row& row : cells) {
    const CellOfHost alone{row[results::kCell], ""};
    known.insert({named(row), alone});
    const experiments::Experiment* experiment = experiments::find_experiment(row[results::kExperiment]);
    const bool told = experiment && std::ranges::count(experiment->tables, &table) > 0 && table.present_if &&
                      !row.text(*table.present_if).empty();
    if (!told || there.contains(named(row)) || there.contains(alone)) continue;
    findings.push_back(file + " lacks the rows of '" + row[results::kCell] + "'");
  }
  for (const CellOfHost& cell : there)
    if (!known.contains(cell))
      findings.push_back(file + " has rows of '" + cell.first + "', which cells.csv lacks");
}

std::set<std::string> hosts_of(const Part& part) {
  std::set<std::string> hosts;
  for (const results::Row& row : part.cells) hosts.insert(row[results::kHost]);
  return hosts;
}

}  // namespace

Sides read_sides(const fs::path& path) {
  Sides sides;
  for (const results::Table* side : experiments::side_tables()) {
    if (fs::exists(path / side->file)) sides[side] = read_whole_table(path / side->file, *side);
  }
  return sides;
}

std::vector<std::string> differences(const std::vector<results::Row>& cells, const Sides& sides,
                                     bool has_samples) {
  std::vector<std::string> findings;
  if (has_samples) compare_samples(cells, sides, findings);
  for (const results::Table* table : experiments::side_tables()) compare_rows(cells, *table, sides, findings);
  return findings;
}

std::vector<std::string> unknown_tables(const fs::path& path) {
  const std::set<std::string> known = experiments::layout_of(experiments::cell_table()).files();
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".csv") && !known.contains(name)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

Part read_part(const fs::path& path) {
  if (!fs::exists(path / "config.toml") || !fs::exists(path / "cells.csv"))
    throw std::invalid_argument(path.string() +
                                " is not a results folder of `kvlab run`: it lacks config.toml or cells.csv");
  Part part{.path = path,
            .config = results::read_whole(path / "config.toml"),
            .environment = results::environment_in(path),
            .cells = read_whole_table(path / "cells.csv", experiments::cell_table()),
            .table = results::table_in(path / "cells.csv", experiments::cell_table()),
            .sides = read_sides(path)};
  if (!part.environment.is_object())
    throw std::invalid_argument((path / "env.json").string() + " is missing or not a JSON object");
  if (io::text_at(part.environment, "/finished").empty())
    throw std::invalid_argument(path.string() + " is not finished" + kFinish);
  for (const std::string& difference : differences(part.cells, part.sides, true))
    throw std::invalid_argument(path.string() + ": " + difference);
  for (const std::string& name : unknown_tables(path))
    throw std::invalid_argument((path / name).string() +
                                " is not a table of this version, so merging would lose it");
  std::string host = io::text_at(part.environment, "/host");
  if (host.empty()) host = io::text_at(part.environment, "/cpu/model");
  for (results::Row& row : part.cells) {
    if (row[results::kHost].empty()) row[results::kHost] = host;
  }
  return part;
}

void require_same_run(const Part& first, const Part& other) {
  const std::string both = other.path.string() + " and " + first.path.string();
  if (other.config != first.config)
    throw std::invalid_argument(both + " have different configs (config.toml)");
  constexpr std::array kBinary{"/kvlab/version", "/kvlab/git_commit", "/kvlab/git_dirty",
                               "/kvlab/binary",  "/compiler",         "/flags"};
  const std::string binary = results::environment_differences(first.environment, other.environment, kBinary);
  if (!binary.empty()) throw std::invalid_argument(both + " come from two binaries: " + binary);
  const std::set<std::string> hosts = hosts_of(first);
  if (!std::ranges::any_of(hosts_of(other), [&](const std::string& host) { return hosts.contains(host); }))
    return;
  constexpr std::array kMachine{"/cpu/model", "/isa", "/device/name", "/threads"};
  const std::string machine =
      results::environment_differences(first.environment, other.environment, kMachine);
  if (!machine.empty())
    throw std::invalid_argument(both + " name the same host but come from two machines: " + machine);
}

void require_all_shards(const std::vector<Part>& parts) {
  std::map<int, std::set<int>> indices;  // by the number of shards
  for (const Part& part : parts) {
    const std::string text = io::text_at(part.environment, "/shard");
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
  throw std::invalid_argument("the sweep is incomplete: shards " + missing +
                              " are missing; --partial merges without them");
}

}  // namespace kv::cluster
