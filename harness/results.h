// A results folder: what is in it, how rows get there, and how an interrupted run goes on.
//
//   cells.csv      one row a cell, written when its block is done
//   samples.csv    one row a sample, written as it is taken
//   growth.csv     one row a step of a growth run
//   positions.csv  one row a bucket of positions of a quality run
//   texts.csv      one row a text of a generate run
//   env.json  config.toml  benchmark.json
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kv {

struct Column {
  std::string_view name;
  std::string_view help;
};

std::span<const Column> cell_columns();
std::span<const Column> sample_columns();
std::span<const Column> growth_columns();
std::span<const Column> position_columns();
std::span<const Column> text_columns();

// One row of a table; fields that are never set are left empty.
class Row {
 public:
  explicit Row(std::span<const Column> columns) : columns_(columns), fields_(columns.size()) {}
  Row(std::span<const Column> columns, std::vector<std::string> fields)
      : columns_(columns), fields_(std::move(fields)) {}

  // A name that is no column is a bug (std::logic_error). Numbers keep the digits that tell them apart; what
  // is not finite is left empty.
  void set(std::string_view column, const std::string& text);
  void set(std::string_view column, double value);
  void set(std::string_view column, int64_t value);
  void set(std::string_view column, int value) { set(column, int64_t{value}); }
  const std::string& text(std::string_view column) const;
  std::optional<double> number(std::string_view column) const;
  const std::vector<std::string>& fields() const { return fields_; }

 private:
  size_t index(std::string_view column) const;
  std::span<const Column> columns_;
  std::vector<std::string> fields_;
};

// Text that only grows, and never by half a line: what could not be written whole is taken back.
class AppendFile {
 public:
  explicit AppendFile(const std::filesystem::path& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  // Throws std::runtime_error: path and the system's reason.
  void append(const std::string& text);
  void sync();

 private:
  std::filesystem::path path_;
  int fd_;
};

// Written under another name, synced, and renamed.
void write_whole(const std::filesystem::path& path, const std::string& text);

// A header and the rows, as text.
std::string csv_text(std::span<const Column> columns, std::span<const Row> rows);

// Rows of a CSV file with exactly these columns. A torn last line is dropped; anything else that is off
// throws std::invalid_argument.
std::vector<Row> read_csv(const std::filesystem::path& path, std::span<const Column> columns);

// Throws std::invalid_argument unless a new run may write to `path`: nothing is there, or an empty folder.
void require_new_folder(const std::filesystem::path& path);

// One program at a time writes to a folder. The system gives the lock back when a program ends, however it
// does.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& path);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

class ResultsFolder {
 public:
  // A new folder, or one that already holds a part of the same config's run and `resume` is set: then its
  // finished cells stay, and what was sampled of unfinished ones goes. Throws std::invalid_argument if the
  // folder holds other results.
  ResultsFolder(const std::filesystem::path& path, const std::string& config, bool resume);

  const std::filesystem::path& path() const { return path_; }
  bool has_cell(const std::string& key) const;
  // Finished cells of the earlier part and of this one, in order.
  const std::vector<Row>& cells() const { return cells_; }

  void add_samples(std::span<const Row> rows);
  void add_growth(std::span<const Row> rows);
  void add_positions(std::span<const Row> rows);
  void add_texts(std::span<const Row> rows);
  // A block's cells, all or none, on disk when this returns.
  void add_cells(std::span<const Row> rows);
  // Forgets these cells and their samples, where there are any.
  void drop_cells(const std::vector<std::string>& keys);
  // When the run began that this one goes on with, if it does.
  std::optional<std::string> started() const;
  void write_environment(const nlohmann::json& environment);
  // Takes back what was written if no cell is finished: a run that could not begin leaves no folder behind.
  void discard_if_empty();
  // From the samples on disk, in Google Benchmark's format.
  void write_benchmark_json(const nlohmann::json& environment);

 private:
  // Rewrites the tables with the rows of finished cells alone, and opens them for more.
  void open_tables();

  void discard();

  std::filesystem::path path_;
  bool made_folder_ = false;
  std::optional<FolderLock> lock_;
  std::vector<Row> cells_;
  std::unique_ptr<AppendFile> cells_file_, samples_file_, growth_file_, positions_file_, texts_file_;
};

}  // namespace kv
