// A results folder: its files, the writing of rows, and the resumption of an interrupted run.
//
//   config.toml    written first: a folder without it holds no run
//   cells.csv      one row a cell, written when its sweep point is done
//   samples.csv …  side tables of the experiments, written as their rows are taken
//   columns.json   the columns of cells.csv with unit and meaning
//   env.json  benchmark.json
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "harness/results/append_file.h"
#include "harness/results/table.h"

namespace kv::results {

// A lock on a folder. The system releases it however the program ends.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& path);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

// Throws std::invalid_argument unless `path` is absent or an empty folder. `can_resume`: the command has --resume.
void require_new_folder(const std::filesystem::path& path, bool can_resume = false);

// The folder's env.json; null if there is none. Throws std::invalid_argument with line and column if it is no JSON.
nlohmann::json environment_in(const std::filesystem::path& folder);

// Differences at JSON pointers that both have: "isa was … and is …"; empty if none.
std::string environment_differences(const nlohmann::json& then, const nlohmann::json& now,
                                    std::span<const char* const> fields);

// Throws std::invalid_argument with the differences if `now` describes another build, other instructions or threads,
// or another kind of machine than began the run in `path`, or if its cells are of several machines or of none that is
// known: cells of one table are compared.
void require_same_environment(const std::filesystem::path& path, const nlohmann::json& now);

// The tables of a run.
struct Layout {
  Table cells;
  std::vector<const Table*> sides;
  std::string columns_json;

  // The names of all files that a folder of this layout may hold, charts apart.
  std::set<std::string> files() const;
};

class ResultsFolder {
 public:
  // Opens a new folder, or with `resume` one with a part of the same config's run: finished cells stay, samples of
  // unfinished ones are dropped. Throws std::invalid_argument if the folder holds other results.
  ResultsFolder(const std::filesystem::path& path, const std::string& config, const Layout& layout,
                bool resume);

  const std::filesystem::path& path() const { return path_; }
  const Table& cell_table() const { return layout_.cells; }
  const Row* find_cell(const std::string& key) const;  // null: not finished
  // Finished cells of the earlier run and of this one, in order.
  const std::vector<Row>& cells() const { return cells_; }

  // Appends rows to one of the layout's side tables.
  void add(const Table& side, std::span<const Row> rows);
  // Writes a sweep point's cells, all or none; they are on disk when this returns.
  void add_cells(std::span<const Row> rows);
  // Writes all finished cells anew, with other values.
  void set_cells(const std::vector<Row>& cells);
  // Drops samples of cells that are not yet in cells.csv.
  void drop_unfinished();
  // Drops these cells and their samples, if any.
  void drop_cells(const std::vector<std::string>& keys);
  // Start time of the run that this one resumes, if any.
  std::optional<std::string> started() const;
  void write_environment(const nlohmann::json& environment);
  // Removes the files of a new run without finished cells, so that a run that cannot begin leaves no folder. An
  // earlier run's files stay.
  void discard_if_empty();
  // Writes a file beside the tables, whole.
  void write(const std::string& name, const std::string& text);

 private:
  // Rewrites the tables with the rows of finished cells and opens them for more.
  void open_tables();

  std::filesystem::path path_;
  bool made_folder_ = false, goes_on_ = false;
  std::optional<FolderLock> lock_;
  Layout layout_;
  std::vector<Row> cells_;
  std::unique_ptr<AppendFile> cells_file_;
  std::map<std::string_view, std::unique_ptr<AppendFile>> side_files_;  // existing ones
};

// A new results folder, which is made beside its place and takes it whole. What a killed command left there is removed first. Throws as
// require_new_folder(), and std::invalid_argument for other files beside.
void write_folder(const std::filesystem::path& out, const std::string& config, const Layout& layout,
                  const std::function<void(ResultsFolder&)>& fill);

}  // namespace kv::results
