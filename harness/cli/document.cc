#include "harness/cli/document.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <stdexcept>

#include "harness/cli/typos.h"
#include "harness/results/append_file.h"

namespace kv::cli {
namespace {

std::string unit_of(const std::string& bytes) { return bytes.substr(bytes.find_last_of("0123456789. ") + 1); }

}  // namespace

size_t terminal_width() {
  const char* columns = std::getenv("COLUMNS");
  if (const int width = columns ? std::atoi(columns) : 0; width > 0) return static_cast<size_t>(width);
  winsize size{};
  if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return size.ws_col;
  return std::numeric_limits<size_t>::max();
}

std::string TableOutput::chosen_format() const {
  if (!format.empty()) return format;
  const std::string ending = std::filesystem::path(out).extension().string();
  if (ending == ".csv" || ending == ".json") return ending.substr(1);
  if (ending == ".md") return "markdown";
  if (ending == ".tex") return "latex";
  return "terminal";
}

std::string TableOutput::shown(const io::TextTable& table) const {
  const std::string chosen = chosen_format();
  if (chosen == "markdown") return io::markdown_text(table);
  if (chosen == "latex") return io::latex_text(table);
  return io::terminal_text(table, out.empty() ? terminal_width() : std::numeric_limits<size_t>::max());
}

void TableOutput::refuse_existing() const {
  if (!out.empty() && std::filesystem::exists(out))
    throw std::invalid_argument("--out " + out + " already exists; give another name");
}

std::string TableOutput::deliver(const std::string& text) const {
  if (out.empty()) return text;
  results::write_whole(out, text);
  return "table: " + out + "\n";
}

void add_output_options(CLI::App& app, TableOutput& output) {
  app.add_option("--units", output.units, "binary (GiB) or decimal (GB)")
      ->check(one_of({"binary", "decimal"}));
  app.add_option("--format", output.format,
                 "terminal, csv, json, markdown or latex (default: from the name of --out, else terminal)")
      ->check(one_of({"terminal", "csv", "json", "markdown", "latex"}));
  app.add_flag_callback(
      "--json", [&output] { output.format = "json"; }, "the same as --format json");
  app.add_option("--out", output.out,
                 "file, e.g. table.csv, table.json, table.md or table.tex (default: standard output)");
}

void add_trust_option(CLI::App& app, bool& trust_config) {
  app.add_flag("--trust-config", trust_config,
               "accept a config.json with an unknown model_type or unknown keys, as if they changed nothing");
}

std::string with_units(const std::string& text, int64_t bytes, io::Units units) {
  const std::string shown = io::human_bytes(bytes, units);
  return unit_of(text) == unit_of(shown) ? text : text + " (" + shown + ")";
}

}  // namespace kv::cli
