// A results folder: what is in it, how rows get there, and how an interrupted run goes on.
//
//   cells.csv      one row a cell, written when its sweep point is done
//   samples.csv …  side tables of the experiments, written as their rows are taken
//   columns.json   the columns of cells.csv with unit and meaning
//   env.json  config.toml  benchmark.json
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "harness/results/append_file.h"
#include "harness/results/cell_columns.h"
#include "harness/results/folder_lock.h"
#include "harness/results/table.h"

namespace kv::results {

// Throws std::invalid_argument unless a new run may write to `path`: nothing is there, or an empty folder.
void require_new_folder(const std::filesystem::path& path);

// env.json as it was written; discarded, in nlohmann's words, where there is none.
nlohmann::json environment_in(const std::filesystem::path& folder);

// What differs of these JSON pointers, where both have them: "isa was … and is …"; empty if nothing.
std::string environment_differences(const nlohmann::json& then, const nlohmann::json& now,
                                    std::span<const char* const> fields);

// Throws std::invalid_argument with what differs if the run in `path` was begun by another build, with other
// instructions or threads, or on another kind of machine than `now` describes: cells of one table are compared.
void require_same_environment(const std::filesystem::path& path, const nlohmann::json& now);

// The tables that a run may write.
struct Layout {
  Table cells;
  std::vector<const Table*> sides;
  std::string columns_json;
};

class ResultsFolder {
 public:
  // A new folder, or one that already holds a part of the same config's run and `resume` is set: then its
  // finished cells stay, and what was sampled of unfinished ones goes. Throws std::invalid_argument if the
  // folder holds other results.
  ResultsFolder(const std::filesystem::path& path, const std::string& config, const Layout& layout,
                bool resume);

  const std::filesystem::path& path() const { return path_; }
  bool has_cell(const std::string& key) const;
  // Finished cells of the earlier part and of this one, in order.
  const std::vector<Row>& cells() const { return cells_; }

  // Rows of one of the layout's side tables, as they are taken.
  void add(const Table& side, std::span<const Row> rows);
  // A sweep point's cells, all or none, on disk when this returns.
  void add_cells(std::span<const Row> rows);
  // Forgets what was measured of cells that are not in cells.csv (yet).
  void drop_unfinished();
  // Forgets these cells and their samples, where there are any.
  void drop_cells(const std::vector<std::string>& keys);
  // When the run began that this one goes on with, if it does.
  std::optional<std::string> started() const;
  void write_environment(const nlohmann::json& environment);
  // Takes back what was written by a new run of which no cell is finished: one that could not begin leaves no
  // folder behind. What an earlier run wrote stays.
  void discard_if_empty();
  // A file beside the tables, written whole.
  void write(const std::string& name, const std::string& text);

 private:
  // Rewrites the tables with the rows of finished cells alone, and opens them for more.
  void open_tables();

  std::filesystem::path path_;
  bool made_folder_ = false, goes_on_ = false;
  std::optional<FolderLock> lock_;
  Layout layout_;
  std::vector<Row> cells_;
  std::unique_ptr<AppendFile> cells_file_;
  std::map<std::string_view, std::unique_ptr<AppendFile>> side_files_;  // those that are there
  std::set<std::string> written_;
};

}  // namespace kv::results
