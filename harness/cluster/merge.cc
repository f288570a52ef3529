#include "harness/cluster/merge.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "harness/cluster/part.h"
#include "harness/results/results_folder.h"

namespace kv::cluster {
namespace {

using Key = std::pair<std::string, std::string>;  // cell, host

// A row and the part that it comes from.
struct Kept {
  results::CellResult row;
  const Part* part;
};

Key key_of(const results::CellResult& row) { return {row.cell, row.host}; }

// The first column in which two rows differ; empty for rows that are alike.
std::string first_difference(const results::CellResult& a, const results::CellResult& b) {
  for (const auto& field : results::cell_schema().fields()) {
    if (field.text(a) != field.text(b))
      return std::string(field.name) + " is " + field.text(a) + " and " + field.text(b);
  }
  return "";
}

std::map<Key, Kept> rows_of(const std::vector<Part>& parts) {
  std::map<Key, Kept> rows;
  for (const Part& part : parts) {
    for (const results::CellResult& row : part.cells) {
      const auto [at, is_new] = rows.try_emplace(key_of(row), Kept{row, &part});
      if (is_new) continue;
      const std::string difference = first_difference(at->second.row, row);
      if (difference.empty()) continue;
      throw std::invalid_argument(at->second.part->path.string() + " and " + part.path.string() +
                                  " both have '" + row.cell + "' of host '" + row.host +
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
  const results::CellResult* first =
      nullptr;  // the cell's first row; the map has all hosts of a cell side by side
  for (const auto& [key, kept] : rows) {
    const results::CellResult& row = kept.row;
    if (!first || first->cell != row.cell) {
      first = &row;
      continue;
    }
    if (row.status != results::Status::kOk || first->status != results::Status::kOk) continue;
    for (const auto& field : results::cell_schema().fields()) {
      if (!belongs_to_sweep(field.name, row.threads == first->threads) ||
          field.text(row) == field.text(*first))
        continue;
      findings.push_back("'" + row.cell + "': " + std::string(field.name) + " is " + field.text(*first) +
                         " on " + first->host + " (" + first->kernel + ") and " + field.text(row) + " on " +
                         row.host + " (" + row.kernel + ")");
    }
  }
  return findings;
}

// The sort key of cells: points in the order of their axes, whichever shard had them. A point's cells stay in their order.
auto place_of(const results::CellResult& row) {
  return std::tuple(row.host, row.experiment, row.workload, row.kv_heads, row.head_dim, row.threads,
                    row.distance, row.passage_tokens, row.lengths, row.batch, row.seq_len);
}

std::vector<results::CellResult> in_order(const std::vector<Part>& parts, const std::map<Key, Kept>& rows) {
  std::vector<results::CellResult> cells;
  for (const Part& part : parts) {
    for (const results::CellResult& row : part.cells) {
      if (rows.at(key_of(row)).part == &part) cells.push_back(row);
    }
  }
  std::ranges::stable_sort(cells, [](const auto& a, const auto& b) { return place_of(a) < place_of(b); });
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
  std::string started = all.value("started", ""), finished = all.value("finished", "");
  for (const Part& part : parts) {
    all = common(all, part.environment);
    started = std::min(started, part.environment.value("started", ""));
    finished = std::max(finished, part.environment.value("finished", ""));
    for (const results::CellResult& row : part.cells) hosts.emplace(row.host, part.environment);
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
template <class Row>
std::vector<Row> kept_rows(const Part& part, const std::vector<Row>& rows, const std::map<Key, Kept>& kept,
                           bool several_hosts) {
  std::map<std::string, std::string> host_of;
  for (const results::CellResult& row : part.cells) {
    if (kept.at(key_of(row)).part == &part) host_of[row.cell] = row.host;
  }
  std::vector<Row> found;
  for (const Row& row : rows) {
    const auto at = host_of.find(row.cell);
    if (at == host_of.end()) continue;
    found.push_back(row);
    if (several_hosts) found.back().host = at->second;
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
  std::set<std::string> hosts;
  for (const results::CellResult& row : merged.cells) hosts.insert(row.host);
  merged.hosts.assign(hosts.begin(), hosts.end());

  const bool several = hosts.size() > 1;
  results::ResultsFolder out(options.out, parts.front().config, false);
  try {
    const nlohmann::json environment = environment_of(parts, merged, options.partial);
    for (const Part& part : parts) {
      out.add_samples(kept_rows(part, part.samples, rows, several));
      out.add_growth(kept_rows(part, part.growth, rows, several));
      if (const auto kept = kept_rows(part, part.positions, rows, several); !kept.empty())
        out.add_positions(kept);
      if (const auto kept = kept_rows(part, part.texts, rows, several); !kept.empty()) out.add_texts(kept);
    }
    out.add_cells(merged.cells);
    out.write_environment(environment);
    out.write_benchmark_json(environment);
  } catch (...) {
    out.discard_if_empty();
    throw;
  }
  return merged;
}

}  // namespace kv::cluster
