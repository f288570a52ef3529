#include "harness/cluster/merge.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "harness/cluster/part.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/json.h"
#include "harness/measure/benchmark_json.h"
#include "harness/results/results_folder.h"

namespace kv::cluster {
namespace {

using Key = std::pair<std::string, std::string>;  // cell, host

// A row and the part that it comes from.
struct Kept {
  results::Row row;
  const Part* part;
};

Key key_of(const results::Row& row) { return {row[results::kCell], row[results::kHost]}; }

// The first column in which two rows differ; empty for rows that are alike.
std::string first_difference(const results::Row& a, const results::Row& b) {
  for (const results::AnyColumn* column : experiments::cell_table().columns) {
    if (a.text(*column) != b.text(*column))
      return std::string(column->name) + " is " + a.text(*column) + " and " + b.text(*column);
  }
  return "";
}

std::map<Key, Kept> rows_of(const std::vector<Part>& parts) {
  std::map<Key, Kept> rows;
  for (const Part& part : parts) {
    for (const results::Row& row : part.cells) {
      const auto [at, is_new] = rows.try_emplace(key_of(row), Kept{row, &part});
      if (is_new) continue;
      const std::string difference = first_difference(at->second.row, row);
      if (difference.empty()) continue;
      throw std::invalid_argument(at->second.part->path.string() + " and " + part.path.string() +
                                  " both have '" + row[results::kCell] + "' of host '" + row[results::kHost] +
                                  "', and they disagree: " + difference);
    }
  }
  return rows;
}

// A cache's bytes and errors do not depend on the machine. Scratch space is one buffer a thread.
bool belongs_to_sweep(std::string_view column, bool same_threads) {
  if (column == "bytes_device_peak") return false;
  if (column == "bytes_workspace_peak") return same_threads;
  constexpr std::string_view kBeginnings[] = {"bytes_", "err_",       "loss",    "kl_",
                                              "top1_",  "perplexity", "p_change"};
  return std::ranges::any_of(kBeginnings, [&](std::string_view begin) { return column.starts_with(begin); });
}

std::vector<std::string> findings_in(const std::map<Key, Kept>& rows) {
  std::vector<std::string> findings;
  const results::Row* first = nullptr;  // the cell's first row; the map has all hosts of a cell side by side
  for (const auto& [key, kept] : rows) {
    const results::Row& row = kept.row;
    if (!first || (*first)[results::kCell] != row[results::kCell]) {
      first = &row;
      continue;
    }
    if (row[results::kStatus] != results::Status::kOk || (*first)[results::kStatus] != results::Status::kOk)
      continue;
    for (const results::AnyColumn* column : experiments::cell_table().columns) {
      const std::string here = row.text(*column), there = first->text(*column);
      if (here == there ||
          !belongs_to_sweep(column->name, row[results::kThreads] == (*first)[results::kThreads]))
        continue;
      findings.push_back("'" + row[results::kCell] + "': " + std::string(column->name) + " is " + there +
                         " on " + (*first)[results::kHost] + " (" + (*first)[results::kKernel] + ") and " +
                         here + " on " + row[results::kHost] + " (" + row[results::kKernel] + ")");
    }
  }
  return findings;
}

// Points come in the order of their axes, whichever shard had them; a point's cells stay in their order.
bool comes_before(const results::Row& a, const results::Row& b) {
  const auto named = [](const results::Row& row) {
    return std::pair(row[results::kHost], row[results::kExperiment]);
  };
  if (named(a) != named(b)) return named(a) < named(b);
  for (const results::AnyColumn* axis : experiments::cell_table().columns) {
    if (axis->title.empty() || axis->is_arm) continue;
    const double here = a.number(*axis).value_or(0.0), there = b.number(*axis).value_or(0.0);
    if (here != there) return here < there;
    if (a.text(*axis) != b.text(*axis)) return a.text(*axis) < b.text(*axis);
  }
  return false;
}

std::vector<results::Row> in_order(const std::vector<Part>& parts, const std::map<Key, Kept>& rows) {
  std::vector<results::Row> cells;
  for (const Part& part : parts) {
    for (const results::Row& row : part.cells) {
      if (rows.at(key_of(row)).part == &part) cells.push_back(row);
    }
  }
  std::ranges::stable_sort(cells, comes_before);
  return cells;
}

// The entries that both have alike.
nlohmann::json common(const nlohmann::json& a, const nlohmann::json& b) {
  nlohmann::json both = nlohmann::json::object();
  for (const auto& [name, value] : a.items()) {
    if (!b.contains(name)) continue;
    if (b[name] == value)
      both[name] = value;
    else if (value.is_object() && b[name].is_object())
      both[name] = common(value, b[name]);
  }
  return both;
}

nlohmann::json environment_of(const std::vector<Part>& parts, const Merged& merged, bool partial) {
  nlohmann::json all = parts.front().environment, hosts = nlohmann::json::object();
  std::string started = io::text_at(all, "/started"), finished = io::text_at(all, "/finished");
  for (const Part& part : parts) {
    all = common(all, part.environment);
    started = std::min(started, io::text_at(part.environment, "/started"));
    finished = std::max(finished, io::text_at(part.environment, "/finished"));
    for (const results::Row& row : part.cells) hosts.emplace(row[results::kHost], part.environment);
  }
  for (auto& [name, environment] : hosts.items()) environment["host"] = name;
  all["shard"] = "1/1";
  all["started"] = started;
  all["finished"] = partial ? "" : finished;
  all["hosts"] = hosts;
  all["findings"] = merged.findings;
  return all;
}

// The rows of this part's cells that are kept, each with its host where there are several.
std::vector<results::Row> kept_rows(const Part& part, const std::vector<results::Row>& rows,
                                    const std::map<Key, Kept>& kept, bool several_hosts) {
  std::map<std::string, std::string> host_of;  // of a part of one machine, whose tables name none
  for (const results::Row& row : part.cells) host_of[row[results::kCell]] = row[results::kHost];
  std::vector<results::Row> found;
  for (results::Row row : rows) {
    std::string& host = row[results::kHost];
    if (host.empty()) host = host_of.at(row[results::kCell]);
    if (const auto at = kept.find(key_of(row)); at == kept.end() || at->second.part != &part) continue;
    if (!several_hosts) host.clear();
    found.push_back(std::move(row));
  }
  return found;
}

}  // namespace

Merged merge(const MergeOptions& options) {
  std::vector<Part> parts;
  for (const std::filesystem::path& folder : options.folders) parts.push_back(read_part(folder));
  for (const Part& part : parts) {
    for (const Part& before : parts) {
      if (&before == &part) break;
      require_same_run(before, part);
    }
  }
  if (!options.partial) require_all_shards(parts);
  const std::map<Key, Kept> rows = rows_of(parts);
  Merged merged{.cells = in_order(parts, rows), .hosts = {}, .findings = findings_in(rows)};
  experiments::judge_cells(merged.cells);
  std::set<std::string> hosts;
  for (const results::Row& row : merged.cells) hosts.insert(row[results::kHost]);
  merged.hosts.assign(hosts.begin(), hosts.end());

  const bool several = hosts.size() > 1;
  results::Table table = parts.front().table;
  for (const Part& part : parts) table.add(part.table.columns);
  results::write_folder(
      options.out, parts.front().config, experiments::layout_of(table), [&](results::ResultsFolder& out) {
        const nlohmann::json environment = environment_of(parts, merged, options.partial);
        for (const Part& part : parts) {
          for (const auto& [side, own] : part.sides) {
            if (const auto kept = kept_rows(part, own, rows, several); !kept.empty()) out.add(*side, kept);
          }
        }
        out.add_cells(merged.cells);
        out.write_environment(environment);
        out.write("benchmark.json",
                  measure::benchmark_json(experiments::timed_steps(out.path()), environment));
      });
  return merged;
}

}  // namespace kv::cluster
