#include "harness/results.h"

#include <csv.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

namespace kv {
namespace {

namespace fs = std::filesystem;

constexpr std::array kCellColumns = std::to_array<Column>({
    {"cell", "key: experiment, workload, batch, length, variant"},
    {"variant", "canonical spec; of stream also recompute(…), which has no cache"},
    {"device", "cpu or cuda: where the cache lives; which GPU, env.json says"},
    {"threads", "threads of the run"},
    {"experiment", "as in the config"},
    {"phase", "decode (one token a step) or prefill; times of the two are never mixed"},
    {"workload", "where Q, K and V come from"},
    {"layers", "measured layers; bytes and times are of all of them together"},
    {"q_heads", ""},
    {"kv_heads", ""},
    {"head_dim", ""},
    {"batch", "sequences in a step"},
    {"seq_len", "tokens a sequence at the end of the last step; of a ragged batch, of the longest"},
    {"lengths", "batch: what the lengths were drawn from"},
    {"arm", "prefill: materialised, chunked or tiled; of models: chunked"},
    {"chunk_tokens", "chunked: tokens whose scores are in memory at once"},
    {"status", "ok, failed, unsupported or out_of_memory"},
    {"reason", "why the status is not ok"},
    {"kernel", "instruction set and formats of the attention that ran"},
    {"bytes_payload", "encoded K and V of kept tokens"},
    {"bytes_metadata", "scales, zero points, block tables and scores, as allocated"},
    {"bytes_slack", "reserved for K and V but not in use"},
    {"bytes_workspace_peak",
     "largest scratch at once during the steps: partial results, scores, decoded or sliced copies"},
    {"bytes_copied", "decode: moved by growth and slicing in `steps` steps; growth: in all steps"},
    {"bytes_predicted", "closed form of payload + metadata + slack"},
    {"bytes_device_peak",
     "a GPU's memory that was held at most during the steps, of all kinds; 0 on the CPU"},
    {"rss_peak_bytes", "of the process so far"},
    {"append_p50_us", "storing one token a sequence"},
    {"view_p50_us", "making the kept rows readable; copies only in read=copy variants"},
    {"attend_p50_us", "attention over what is kept"},
    {"step_p50_us", "append + view + attend"},
    {"step_p90_us", ""},
    {"step_p99_us", ""},
    {"step_max_us", ""},
    {"step_ci_low_us", "95 % bootstrap interval of the median step, over repetitions"},
    {"step_ci_high_us", ""},
    {"cold_attend_p50_us", "attention rotating over enough caches to leave the last-level cache"},
    {"cold_ci_low_us", ""},
    {"cold_ci_high_us", ""},
    {"read_gbps", "stored bytes of K, V, scales and zero points that one attend reads / attend_p50_us"},
    {"ceiling_gbps", "reading as many bytes, over and over, and doing nothing else"},
    {"ceiling_share", "read_gbps / ceiling_gbps"},
    {"cold_read_gbps", "the same for cold_attend_p50_us"},
    {"cold_ceiling_gbps", "reading more than twice the last-level cache"},
    {"cold_ceiling_share", ""},
    {"multiply_adds", "of one attend: 2 * head_dim for each query head and row that it keeps"},
    {"multiply_add_peak_per_s",
     "in registers and nothing else, with the instructions that the kernel multiplies with"},
    {"bound",
     "which takes longer: memory (what is read, at ceiling_gbps) or compute (multiply_adds at their peak)"},
    {"bound_us", "that time: no attend is faster"},
    {"bound_share", "bound_us / attend_p50_us"},
    {"cold_bound", "the same for cold_attend_p50_us, at cold_ceiling_gbps"},
    {"cold_bound_us", ""},
    {"cold_bound_share", ""},
    {"err_max_abs", "attention output against FP64 over all tokens as they came"},
    {"err_rel_l2", ""},
    {"err_cosine", "cosine similarity"},
    {"err_attn_kl", "KL(cache || FP64) of the attention distribution, mean over heads, nats"},
    {"err_codec_rel_l2", "FP64 on the stored rows against FP64 on the same tokens as they came"},
    {"err_retention_rel_l2", "FP64 on the kept tokens against FP64 on all"},
    {"err_kernel_rel_l2", "the cache's output against FP64 on the stored rows"},
    {"waste_share", "batch: slack / (payload + metadata + slack)"},
    {"prefill_p50_us", "storing and attending the whole prompt, all layers and sequences"},
    {"prefill_ci_low_us", "95 % bootstrap interval of the median, over repetitions"},
    {"prefill_ci_high_us", ""},
    {"prefill_tokens_per_s", ""},
    {"err_positions",
     "budget: last tokens that errors are means over (err_max_abs and err_kernel: the largest)"},
    {"kept_tokens", "of a sequence, a layer and a head at the end"},
    {"held_bytes_per_token",
     "payload + metadata + slack + disk over all tokens given, evicted ones included"},
    {"policy_choices", "evictions that were held against the FP64 policy; 0 if that would cost too much"},
    {"policy_disputed", "of these, near ties that f32 decided otherwise"},
    {"bytes_disk", "K and V in files, scales and zero points included"},
    {"series", "the variant as the config has it: the same at every {budget}"},
    {"save_p50_us", "checkpoint: one sequence to a file, synced to the disk"},
    {"load_p50_us", "and back, from the page cache"},
    {"freeze_p50_us", "one sequence to a snapshot in memory"},
    {"unfreeze_p50_us", "and back"},
    {"fork_p50_us", "a second sequence of the same contents"},
    {"saved_bytes", "of the file"},
    {"fork_bytes", "held more after a fork, until it grows apart"},
    {"predictions", "quality, recall: next-token predictions that count, of all sequences"},
    {"loss", "mean of -log p of the token that came, nats"},
    {"loss_se", "its standard error, over stretches of 64 positions"},
    {"perplexity", "exp(loss)"},
    {"perplexity_se", ""},
    {"loss_change", "mean over the same predictions of the full f32 cache: paired"},
    {"loss_change_ci_low", "95 % bootstrap interval over stretches of 64 positions; likewise below"},
    {"loss_change_ci_high", ""},
    {"kl_mean", "KL(full f32 cache || variant) of the next token, nats"},
    {"kl_mean_ci_low", ""},
    {"kl_mean_ci_high", ""},
    {"kl_median", ""},
    {"kl_p99", ""},
    {"kl_max", ""},
    {"top1_agreement", "share of predictions whose likeliest token is the full f32 cache's"},
    {"top1_agreement_ci_low", ""},
    {"top1_agreement_ci_high", ""},
    {"p_change_rms", "root mean square of the change of the correct token's probability"},
    {"peak_bytes", "held and workspace at their largest sum"},
    {"tokens_per_s", "read or generated by one thread, the model included"},
    {"chunk_max_diff",
     "chunked: largest change of a loss of the first sequence against token by token, nats"},
    {"distance", "recall: tokens from the passage to its copy"},
    {"passage_tokens", "recall: of one copy"},
    {"trained_tokens", "stream: the context that the model was trained for"},
    {"temperature", "generate: 0 is greedy"},
    {"generated_tokens", "generate: of each sequence, after its prompt"},
    {"common_tokens_p50",
     "generate: tokens before the text leaves the full f32 cache's, median of the sequences"},
    {"common_tokens_min", ""},
    {"same_texts", "generate: sequences that never leave it"},
    {"versus", "the variant, or for prefill the arm, that times or losses are compared with"},
    {"ratio_p50", "median step / that of `versus`, over the interleaved repetitions"},
    {"ratio_ci_low", ""},
    {"ratio_ci_high", ""},
    {"cold_ratio_p50", "the same of cold_attend_p50_us"},
    {"cold_ratio_ci_low", ""},
    {"cold_ratio_ci_high", ""},
    {"verdict",
     "baseline, faster, slower, ambiguous, or null: the baseline against itself; of losses baseline, worse, "
     "better, ambiguous, or identical"},
    {"repetitions", ""},
    {"samples", "steps in all"},
});

constexpr std::array kSampleColumns = std::to_array<Column>({
    {"cell", ""},
    {"variant", ""},
    {"seq_len", ""},
    {"batch", ""},
    {"repetition", ""},
    {"sample", ""},
    {"kind", "step, prefill, cold (attention alone over rotating caches), or a checkpoint run's operation"},
    {"append_us", ""},
    {"view_us", ""},
    {"attend_us", ""},
    {"step_us", ""},
});

constexpr std::array kGrowthColumns = std::to_array<Column>({
    {"cell", ""},
    {"variant", ""},
    {"batch", ""},
    {"seq_len", ""},
    {"repetition", ""},
    {"token", "tokens a sequence after this step"},
    {"append_us", ""},
    {"view_us", ""},
    {"attend_us", "empty where the run measures the cache update alone"},
    {"step_us", ""},
    {"bytes_payload", ""},
    {"bytes_metadata", ""},
    {"bytes_slack", ""},
    {"bytes_workspace", ""},
    {"bytes_copied", "since the first step"},
});

// One row a cell and bucket of positions; the columns of predictions are those of cells.
constexpr std::array kPositionColumns = std::to_array<Column>({
    {"cell", ""},
    {"variant", ""},
    {"batch", ""},
    {"seq_len", ""},
    {"position_first", "tokens before the first prediction of the bucket, less one"},
    {"position_last", ""},
    {"predictions", ""},
    {"loss", ""},
    {"loss_se", ""},
    {"loss_change", ""},
    {"loss_change_ci_low", ""},
    {"loss_change_ci_high", ""},
    {"kl_mean", ""},
    {"kl_mean_ci_low", ""},
    {"kl_mean_ci_high", ""},
    {"kl_median", ""},
    {"kl_p99", ""},
    {"kl_max", ""},
    {"top1_agreement", ""},
    {"top1_agreement_ci_low", ""},
    {"top1_agreement_ci_high", ""},
    {"p_change_rms", ""},
});

constexpr std::array kTextColumns = std::to_array<Column>({
    {"cell", ""},
    {"variant", ""},
    {"temperature", "0 is greedy"},
    {"sequence", ""},
    {"common_tokens", "generated before the text leaves the full f32 cache's; empty if it never does"},
    {"prompt", "what both go on from"},
    {"text", ""},
    {"full_text", "with the full f32 cache and the same random numbers"},
});

std::string system_reason() { return std::strerror(errno); }

std::string csv_line(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) {
    if (&field != &fields.front()) line += ',';
    const bool plain = field.find_first_of(",\"\r\n") == std::string::npos;
    if (plain) {
      line += field;
      continue;
    }
    std::vector<char> quoted(2 * field.size() + 2);
    const size_t n = csv_write(quoted.data(), quoted.size(), field.data(), field.size());
    line.append(quoted.data(), n);
  }
  return line + "\n";
}

std::string header(std::span<const Column> columns) {
  std::vector<std::string> names;
  for (const Column& c : columns) names.emplace_back(c.name);
  return csv_line(names);
}

std::string lines(std::span<const Row> rows) {
  std::string text;
  for (const Row& row : rows) text += csv_line(row.fields());
  return text;
}

std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The table with the rows of `keep`'s cells alone, ready for more.
std::unique_ptr<AppendFile> reopen(const fs::path& path, std::span<const Column> columns,
                                   const std::set<std::string>& keep) {
  std::string text = header(columns);
  if (fs::exists(path)) {
    for (const Row& row : read_csv(path, columns)) {
      if (keep.count(row.text("cell"))) text += csv_line(row.fields());
    }
  }
  write_whole(path, text);
  return std::make_unique<AppendFile>(path);
}

}  // namespace

std::span<const Column> cell_columns() { return kCellColumns; }
std::span<const Column> sample_columns() { return kSampleColumns; }
std::span<const Column> growth_columns() { return kGrowthColumns; }
std::span<const Column> position_columns() { return kPositionColumns; }
std::span<const Column> text_columns() { return kTextColumns; }

size_t Row::index(std::string_view column) const {
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].name == column) return i;
  }
  throw std::logic_error("no column '" + std::string(column) + "'");
}

void Row::set(std::string_view column, const std::string& text) { fields_[index(column)] = text; }
void Row::set(std::string_view column, int64_t value) { fields_[index(column)] = std::to_string(value); }
void Row::set(std::string_view column, double value) {
  std::string& field = fields_[index(column)];
  field.clear();
  if (!std::isfinite(value)) return;
  std::array<char, 32> digits;
  const auto end =
      std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::general, 9);
  field.assign(digits.data(), end.ptr);
}
const std::string& Row::text(std::string_view column) const { return fields_[index(column)]; }
std::optional<double> Row::number(std::string_view column) const {
  const std::string& field = text(column);
  double value = 0.0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size()) return std::nullopt;
  return value;
}

AppendFile::AppendFile(const fs::path& path) : path_(path) {
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) throw std::runtime_error("cannot write " + path.string() + ": " + system_reason());
}

AppendFile::~AppendFile() { close(fd_); }

void AppendFile::append(const std::string& text) {
  const off_t before = lseek(fd_, 0, SEEK_END);
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const std::string reason = system_reason();
      if (ftruncate(fd_, before) != 0)
        throw std::runtime_error("cannot write or restore " + path_.string() + ": " + reason);
      throw std::runtime_error("cannot write " + path_.string() + ": " + reason);
    }
    done += static_cast<size_t>(n);
  }
}

void AppendFile::sync() {
  // Pipes and some network file systems cannot sync; they report EINVAL, and then there is nothing more to
  // do.
  if (fsync(fd_) != 0 && errno != EINVAL)
    throw std::runtime_error("cannot write " + path_.string() + ": " + system_reason());
}

std::string csv_text(std::span<const Column> columns, std::span<const Row> rows) {
  return header(columns) + lines(rows);
}

void write_whole(const fs::path& path, const std::string& text) {
  const fs::path temporary = path.string() + ".part";
  try {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    AppendFile file(temporary);
    file.append(text);
    file.sync();
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
  fs::rename(temporary, path);
}

std::vector<Row> read_csv(const fs::path& path, std::span<const Column> columns) {
  std::string text = slurp(path);
  text.erase(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
  struct Parse {
    std::vector<std::vector<std::string>> rows;
    std::vector<std::string> row;
  } parse;
  csv_parser parser;
  csv_init(&parser, CSV_STRICT);
  const auto field = [](void* value, size_t n, void* p) {
    static_cast<Parse*>(p)->row.emplace_back(static_cast<const char*>(value), n);
  };
  const auto row = [](int, void* p) {
    auto* to = static_cast<Parse*>(p);
    to->rows.push_back(std::move(to->row));
    to->row.clear();
  };
  const bool good = csv_parse(&parser, text.data(), text.size(), field, row, &parse) == text.size();
  csv_free(&parser);
  if (!good) throw std::invalid_argument(path.string() + ": not a CSV file");
  std::vector<Row> rows;
  for (size_t i = 0; i < parse.rows.size(); ++i) {
    if (parse.rows[i].size() != columns.size()) {
      throw std::invalid_argument(path.string() + ": row " + std::to_string(i + 1) + " has " +
                                  std::to_string(parse.rows[i].size()) + " fields instead of " +
                                  std::to_string(columns.size()) + "; it was written by another version");
    }
    for (size_t c = 0; i == 0 && c < columns.size(); ++c) {
      if (parse.rows[0][c] == columns[c].name) continue;
      throw std::invalid_argument(path.string() + ": column " + std::to_string(c + 1) + " is '" +
                                  parse.rows[0][c] + "' instead of '" + std::string(columns[c].name) +
                                  "'; it was written by another version");
    }
    if (i > 0) rows.emplace_back(columns, std::move(parse.rows[i]));
  }
  return rows;
}

void require_new_folder(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  fs::path there = fs::absolute(path);
  while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  if (access(there.c_str(), W_OK) != 0)
    throw std::invalid_argument("--out " + path.string() + ": cannot write to " + there.string() + ": " +
                                system_reason());
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status))
    throw std::invalid_argument("--out " + path.string() + " is a file; a folder is needed");
  if (fs::exists(path / "config.toml", error))
    throw std::invalid_argument("--out " + path.string() +
                                " already holds results; `kvlab run` goes on with them with --resume, or "
                                "choose another folder");
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    // What a run leaves that was killed in its first moment.
    if (entry.path().filename() == "config.toml.part") continue;
    throw std::invalid_argument("--out " + path.string() +
                                " holds other files; a new folder, or an empty one, is needed");
  }
}

ResultsFolder::ResultsFolder(const fs::path& path, const std::string& config, bool resume) : path_(path) {
  std::error_code error;
  const bool there = resume && fs::exists(path / "config.toml", error);
  if (!there) require_new_folder(path);
  if (there && slurp(path / "config.toml") != config) {
    throw std::invalid_argument(path.string() +
                                " was made with another config; --resume needs the same config and options");
  }
  made_folder_ = !fs::exists(path, error);
  fs::create_directories(path, error);
  if (error) throw std::invalid_argument("cannot make the folder " + path.string() + ": " + error.message());
  try {
    lock_.emplace(path);
    // The config first: whatever else a killed run leaves, it can be resumed.
    if (!there) write_whole(path / "config.toml", config);
    if (fs::exists(path / "cells.csv")) cells_ = read_csv(path / "cells.csv", cell_columns());
    open_tables();
  } catch (...) {
    if (!there) discard();
    throw;
  }
}

void ResultsFolder::discard_if_empty() {
  if (cells_.empty()) discard();
}

void ResultsFolder::discard() {
  std::error_code ignored;
  for (const char* name : {"cells.csv", "samples.csv", "growth.csv", "positions.csv", "texts.csv", "env.json",
                           "benchmark.json", "config.toml"}) {
    fs::remove(path_ / name, ignored);
  }
  if (made_folder_) fs::remove(path_, ignored);
}

FolderLock::FolderLock(const fs::path& path) : fd_(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  // Some network file systems know no locks; they get none.
  if (fd_ < 0 || flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  close(fd_);
  throw std::invalid_argument("another kvlab is writing to " + path.string());
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

void ResultsFolder::open_tables() {
  std::set<std::string> finished;
  for (const Row& row : cells_) finished.insert(row.text("cell"));
  cells_file_ = reopen(path_ / "cells.csv", cell_columns(), finished);
  samples_file_ = reopen(path_ / "samples.csv", sample_columns(), finished);
  growth_file_ = reopen(path_ / "growth.csv", growth_columns(), finished);
  // Tables of few experiments come with their first rows.
  if (fs::exists(path_ / "positions.csv"))
    positions_file_ = reopen(path_ / "positions.csv", position_columns(), finished);
  if (fs::exists(path_ / "texts.csv")) texts_file_ = reopen(path_ / "texts.csv", text_columns(), finished);
}

void ResultsFolder::drop_cells(const std::vector<std::string>& keys) {
  const auto dropped = [&](const Row& row) {
    return std::count(keys.begin(), keys.end(), row.text("cell")) > 0;
  };
  if (std::erase_if(cells_, dropped) > 0) {
    write_whole(path_ / "cells.csv", header(cell_columns()) + lines(cells_));
    open_tables();
  }
}

bool ResultsFolder::has_cell(const std::string& key) const {
  return std::any_of(cells_.begin(), cells_.end(), [&](const Row& row) { return row.text("cell") == key; });
}

void ResultsFolder::add_samples(std::span<const Row> rows) { samples_file_->append(lines(rows)); }
void ResultsFolder::add_growth(std::span<const Row> rows) { growth_file_->append(lines(rows)); }

void ResultsFolder::add_positions(std::span<const Row> rows) {
  if (!positions_file_) positions_file_ = reopen(path_ / "positions.csv", position_columns(), {});
  positions_file_->append(lines(rows));
}
void ResultsFolder::add_texts(std::span<const Row> rows) {
  if (!texts_file_) texts_file_ = reopen(path_ / "texts.csv", text_columns(), {});
  texts_file_->append(lines(rows));
}

void ResultsFolder::add_cells(std::span<const Row> rows) {
  for (AppendFile* side :
       {samples_file_.get(), growth_file_.get(), positions_file_.get(), texts_file_.get()}) {
    if (side) side->sync();
  }
  cells_file_->append(lines(rows));
  cells_file_->sync();
  cells_.insert(cells_.end(), rows.begin(), rows.end());
}

std::optional<std::string> ResultsFolder::started() const {
  const auto environment = nlohmann::json::parse(slurp(path_ / "env.json"), nullptr, false);
  if (!environment.is_object() || !environment.contains("started") || !environment["started"].is_string())
    return std::nullopt;
  return environment["started"].get<std::string>();
}

void ResultsFolder::write_environment(const nlohmann::json& environment) {
  write_whole(path_ / "env.json", environment.dump(2) + "\n");
}

void ResultsFolder::write_benchmark_json(const nlohmann::json& environment) {
  // One entry a repetition, whose time is the median of its steps: what compare.py's U test expects.
  std::map<std::pair<std::string, int>, std::vector<double>> repetitions;
  std::vector<std::pair<std::string, int>> order;
  const auto add = [&](const Row& row, const std::string& suffix) {
    const std::pair key{row.text("cell") + suffix, static_cast<int>(row.number("repetition").value_or(0))};
    auto& times = repetitions[key];
    if (times.empty()) order.push_back(key);
    times.push_back(row.number("step_us").value_or(row.number("attend_us").value_or(0.0)));
  };
  for (const Row& row : read_csv(path_ / "samples.csv", sample_columns())) {
    add(row, row.text("kind") == "step" ? "" : " " + row.text("kind"));
  }
  for (const Row& row : read_csv(path_ / "growth.csv", growth_columns())) add(row, "");
  nlohmann::json benchmarks = nlohmann::json::array();
  for (const auto& key : order) {
    std::vector<double>& times = repetitions[key];
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                     times.end());
    const double median = times[times.size() / 2];
    benchmarks.push_back({{"name", key.first},
                          {"run_name", key.first},
                          {"run_type", "iteration"},
                          {"repetition_index", key.second},
                          {"threads", 1},
                          {"iterations", times.size()},
                          {"real_time", median},
                          {"cpu_time", median},
                          {"time_unit", "us"}});
  }
  const nlohmann::json context = {{"date", environment.value("started", "")},
                                  {"executable", "kvlab"},
                                  {"num_cpus", environment["cpu"]["cores"]},
                                  {"library_build_type", "release"}};
  write_whole(path_ / "benchmark.json",
              nlohmann::json{{"context", context}, {"benchmarks", benchmarks}}.dump(1) + "\n");
}

}  // namespace kv
