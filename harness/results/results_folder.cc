#include "harness/results/results_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "harness/io/json.h"
#include "harness/results/cell_columns.h"

namespace kv::results {
namespace {

namespace fs = std::filesystem;

// Rewrites the table with the rows of `keep`'s cells and opens it for more.
std::unique_ptr<AppendFile> reopen(const fs::path& folder, const Table& table,
                                   const std::set<std::string>& keep) {
  const fs::path path = folder / table.file;
  std::vector<Row> rows;
  if (fs::exists(path)) rows = read_csv(path, table);
  std::erase_if(rows, [&](const Row& row) { return !keep.contains(row[kCell]); });
  write_whole(path, csv_text(table, rows));
  return std::make_unique<AppendFile>(path);
}

// True if the folder's cells.csv has more than a header.
bool has_cells(const fs::path& folder) {
  const std::string text = read_whole(folder / "cells.csv");
  return text.find('\n') != text.rfind('\n');
}

// Removes what a killed command left there. Throws std::invalid_argument for a folder with other files, and where a command goes on.
void remove_unfinished(const fs::path& path, const Layout& layout) {
  if (!fs::is_directory(path)) return;
  const FolderLock lock(path);
  const std::set<std::string> ours = layout.files();
  for (const auto& entry : fs::directory_iterator(path)) {
    fs::path name = entry.path().filename();
    if (name.extension() == ".part") name = name.stem();
    if (!ours.contains(name.string()))
      throw std::invalid_argument(path.string() +
                                  ", in which kvlab works, holds other files: " + name.string());
  }
  fs::remove_all(path);
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& path)
    : fd_(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  // Some network file systems have no locks; folders there stay unlocked.
  if (fd_ >= 0 && flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(fd_);
    throw std::invalid_argument("another kvlab is writing to " + path.string());
  }
  // The lock's earlier holder may have removed the folder opened here.
  struct stat opened = {}, there = {};
  if (fd_ >= 0 && fstat(fd_, &opened) == 0 && stat(path.c_str(), &there) == 0 &&
      opened.st_ino == there.st_ino && opened.st_dev == there.st_dev)
    return;
  if (fd_ >= 0) close(fd_);
  throw std::invalid_argument("another kvlab has removed " + path.string() + "; start again");
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

std::set<std::string> Layout::files() const {
  std::set<std::string> names{"config.toml",    "columns.json",          "env.json",           "answers.json",
                              "benchmark.json", std::string(cells.file), "outputs.safetensors"};
  for (const Table* side : sides) names.emplace(side->file);
  return names;
}

void require_new_folder(const fs::path& path, bool can_resume) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  fs::path there = fs::absolute(path);
  while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  if (access(there.c_str(), W_OK) != 0)
    throw std::invalid_argument("--out " + path.string() + ": cannot write to " + there.string() + ": " +
                                std::strerror(errno));
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status))
    throw std::invalid_argument("--out " + path.string() + " is a file; a folder is needed");
  // Leftovers of a run killed in its first moment do not count as foreign files.
  const bool others = std::ranges::any_of(fs::directory_iterator(path, error), [](const auto& entry) {
    return entry.path().filename() != "config.toml.part";
  });
  // Checked after the listing: a run that starts at the same moment creates this file first.
  if (fs::exists(path / "config.toml", error))
    throw std::invalid_argument("--out " + path.string() + " already holds results; " +
                                (can_resume ? "add --resume to continue that run, or choose another folder"
                                            : "choose another folder"));
  if (others)
    throw std::invalid_argument("--out " + path.string() +
                                " holds other files; a new folder, or an empty one, is needed");
}

nlohmann::json environment_in(const fs::path& folder) { return io::read_json(folder / "env.json"); }

std::string environment_differences(const nlohmann::json& then, const nlohmann::json& now,
                                    std::span<const char* const> fields) {
  std::string differences;
  for (const char* name : fields) {
    const nlohmann::json::json_pointer field(name);
    if (!then.contains(field) || !now.contains(field) || then[field] == now[field]) continue;
    differences += (differences.empty() ? "" : ", ") + field.back() + " was " + io::shown(then[field]) +
                   " and is " + io::shown(now[field]);
  }
  return differences;
}

void require_same_environment(const fs::path& path, const nlohmann::json& now) {
  const nlohmann::json then = environment_in(path);
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument("--resume: what " + path.string() + " holds " + why +
                                "; go on where it was begun, or measure anew in another folder");
  };
  if (!then.is_object()) {
    if (has_cells(path)) refuse("has no env.json that says where it was measured");
    return;
  }
  if (const auto hosts = then.find("hosts"); hosts != then.end() && hosts->size() > 1)
    refuse("was merged from " + std::to_string(hosts->size()) + " machines");
  constexpr std::array kFields{"/kvlab/version",   "/kvlab/git_commit",
                               "/kvlab/git_dirty", "/kvlab/binary",
                               "/compiler",        "/flags",
                               "/cpu/model",       "/isa",
                               "/device/name",     "/threads",
                               "/policies",        "/shard"};
  const std::string differences = environment_differences(then, now, kFields);
  if (!differences.empty()) refuse("was measured otherwise: " + differences);
}

ResultsFolder::ResultsFolder(const fs::path& path, const std::string& config, const Layout& layout,
                             bool resume)
    : path_(path), layout_(layout) {
  std::error_code error;
  const auto holds_a_run = [&] { return resume && fs::exists(path / "config.toml", error); };
  if (!holds_a_run()) require_new_folder(path, true);
  made_folder_ = fs::create_directories(path, error);
  if (error) throw std::invalid_argument("cannot make the folder " + path.string() + ": " + error.message());
  // The lock's holder may have changed the folder, so it is checked again under the lock.
  lock_.emplace(path);
  goes_on_ = holds_a_run();
  if (!goes_on_) require_new_folder(path, true);
  if (goes_on_ && read_whole(path / "config.toml") != config) {
    throw std::invalid_argument(path.string() +
                                " was made with another config; --resume needs the same config and options");
  }
  try {
    // The config is written first: a run killed at any later moment can be resumed.
    if (!goes_on_) write_whole(path / "config.toml", config);
    if (fs::exists(path / "cells.csv")) cells_ = read_csv(path / "cells.csv", layout_.cells);
    open_tables();
    write("columns.json", layout_.columns_json);
  } catch (...) {
    discard_if_empty();
    throw;
  }
}

void ResultsFolder::discard_if_empty() {
  if (goes_on_ || !cells_.empty()) return;
  std::error_code ignored;
  for (const std::string& name : layout_.files()) fs::remove(path_ / name, ignored);
  if (made_folder_) fs::remove(path_, ignored);
}

void ResultsFolder::open_tables() {
  std::set<std::string> finished;
  for (const Row& row : cells_) finished.insert(row[kCell]);
  cells_file_ = reopen(path_, layout_.cells, finished);
  for (const Table* side : layout_.sides) {
    if (fs::exists(path_ / side->file)) side_files_[side->file] = reopen(path_, *side, finished);
  }
}

void ResultsFolder::set_cells(const std::vector<Row>& cells) {
  cells_ = cells;
  write_whole(path_ / "cells.csv", csv_text(layout_.cells, cells_));
  open_tables();
}

void ResultsFolder::drop_cells(const std::vector<std::string>& keys) {
  const auto dropped = [&](const Row& row) { return std::count(keys.begin(), keys.end(), row[kCell]) > 0; };
  if (std::erase_if(cells_, dropped) > 0) set_cells(std::vector<Row>(cells_));
}

void ResultsFolder::drop_unfinished() { open_tables(); }

const Row* ResultsFolder::find_cell(const std::string& key) const {
  const auto found = std::ranges::find_if(cells_, [&](const Row& row) { return row[kCell] == key; });
  return found == cells_.end() ? nullptr : &*found;
}

void ResultsFolder::add(const Table& side, std::span<const Row> rows) {
  std::unique_ptr<AppendFile>& file = side_files_[side.file];
  if (!file) file = reopen(path_, side, {});
  file->append(csv_lines(side, rows));
}

void ResultsFolder::add_cells(std::span<const Row> rows) {
  for (const auto& [name, side] : side_files_) side->sync();
  cells_file_->append(csv_lines(layout_.cells, rows));
  cells_file_->sync();
  cells_.insert(cells_.end(), rows.begin(), rows.end());
}

std::optional<std::string> ResultsFolder::started() const {
  const std::string then = io::text_at(environment_in(path_), "/started");
  return then.empty() ? std::nullopt : std::optional(then);
}

void ResultsFolder::write_environment(const nlohmann::json& environment) {
  write("env.json", io::json_text(environment, 2) + "\n");
}

void ResultsFolder::write(const std::string& name, const std::string& text) {
  write_whole(path_ / name, text);
}

void write_folder(const fs::path& out, const std::string& config, const Layout& layout,
                  const std::function<void(ResultsFolder&)>& fill) {
  require_new_folder(out);
  const fs::path unfinished = (out.has_filename() ? out : out.parent_path()).string() + ".part";
  remove_unfinished(unfinished, layout);
  try {
    ResultsFolder folder(unfinished, config, layout, false);
    fill(folder);
    fs::rename(unfinished, out);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);
    throw;
  }
}

}  // namespace kv::results
