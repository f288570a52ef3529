#include "harness/cli/tables.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "harness/cli/progress.h"
#include "harness/cli/variants_option.h"
#include "harness/io/bytes.h"
#include "harness/tables/fit_table.h"
#include "harness/tables/memory_table.h"
#include "harness/tables/model_memory.h"
#include "harness/tables/table_columns.h"

namespace kv::cli {
namespace {

constexpr size_t kMostLengths = 1000;

int64_t parse_tokens(const std::string& text) {
  const std::optional<int64_t> tokens = io::parse_token_count(text);
  if (!tokens || *tokens < 1 || *tokens > tables::kMostTokens) {
    throw std::invalid_argument("--lengths: '" + text + "' is not a number of tokens from 1 to " +
                                std::to_string(tables::kMostTokens) +
                                "; write 1024,4096 or 4K,128K or 1024..128K (doubling)");
  }
  return *tokens;
}

std::vector<int64_t> parse_lengths(const std::string& text) {
  std::vector<int64_t> lengths;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    part.erase(std::remove(part.begin(), part.end(), ' '), part.end());
    const size_t dots = part.find("..");
    const int64_t first = parse_tokens(part.substr(0, dots));
    const int64_t last = dots == std::string::npos ? first : parse_tokens(part.substr(dots + 2));
    if (last < first) throw std::invalid_argument("--lengths: '" + part + "' ends before it begins");
    for (int64_t tokens = first; tokens <= last; tokens *= 2) lengths.push_back(tokens);
  }
  if (lengths.empty())
    throw std::invalid_argument("--lengths is empty; write 1024,4096 or 1024..131072 (doubling)");
  if (lengths.size() > kMostLengths)
    throw std::invalid_argument("--lengths has more than " + std::to_string(kMostLengths) + " lengths");
  return lengths;
}

// Default lengths end with the trained context.
int64_t last_length(const config::Geometry& g) {
  constexpr int64_t kUsual = 131072;
  return g.max_positions > 0 ? std::min(g.max_positions, tables::kMostTokens) : kUsual;
}

std::vector<int64_t> growth_lengths(const config::Geometry& g) {
  const int64_t last = last_length(g);
  std::vector<int64_t> lengths;
  for (int64_t tokens = 1024; tokens < last; tokens *= 2) lengths.push_back(tokens);
  lengths.push_back(last);
  return lengths;
}

std::vector<int64_t> fit_lengths(const config::Geometry& g) {
  std::vector<int64_t> lengths{2048, 8192, 32768, 131072};
  const int64_t last = last_length(g);
  std::erase_if(lengths, [&](int64_t tokens) { return tokens >= last; });
  lengths.push_back(last);
  return lengths;
}

std::string growth(const TablesOptions& options, const std::vector<config::Geometry>& models) {
  Document document(options.output, tables::kMemoryTable);
  const int64_t measured_up_to = io::parse_bytes(options.measure, "--measure");
  Progress progress(/*quiet=*/!isatty(STDERR_FILENO));
  for (const config::Geometry& geometry : models) {
    tables::MemoryTable table{
        .geometry = geometry,
        .variants = parse_variants(options.variants),
        .lengths = options.lengths.empty() ? growth_lengths(geometry) : parse_lengths(options.lengths),
        .batch = options.batch,
        .measured_up_to = measured_up_to,
        .cells = {}};
    tables::compute(table, [&](int done, int total, const std::string& what) {
      progress.update(done, total, what, done, total);
    });
    progress.clear();
    document.add(table);
  }
  return document.text();
}

void add_weights(tables::FitTable& table, const std::string& option, io::Units units) {
  const config::Geometry& g = table.geometry;
  if (!option.empty()) {
    table.weights_bytes = io::parse_bytes(option, "--weights");
    table.weights_text = with_units(option, *table.weights_bytes, units);
    table.weights_from = "given";
  } else if (g.weights_bytes > 0) {
    table.weights_bytes = g.weights_bytes;
    table.weights_from = g.parameters_computed ? "computed" : "stated";
    table.weights_text = io::human_bytes(g.weights_bytes, units) + " (" + tables::grouped(g.parameters) +
                         " parameters in " + g.dtype +
                         (g.parameters_computed ? ", computed from its config.json)" : ")");
  }
}

// With --disk the default variants include tiered caches, which use it.
std::string fit_variants(const TablesOptions& options) {
  if (options.disk.empty() || options.variants != TablesOptions().variants) return options.variants;
  return options.variants + "; tiered/f16; tiered/q4_0";
}

std::string fits(const TablesOptions& options, const std::vector<config::Geometry>& models) {
  Document document(options.output, tables::kFitTable);
  const io::Units units = options.output.shown_units();
  const int64_t budget = io::parse_bytes(options.budget, "--budget");
  for (const config::Geometry& geometry : models) {
    tables::FitTable table{
        .geometry = geometry,
        .variants = parse_variants(fit_variants(options)),
        .lengths = options.lengths.empty() ? fit_lengths(geometry) : parse_lengths(options.lengths),
        .batch = options.batch,
        .budget_bytes = budget,
        .budget_text = with_units(options.budget, budget, units),
        .weights_text = {}};
    add_weights(table, options.weights, units);
    if (!options.disk.empty()) {
      table.disk_bytes = io::parse_bytes(options.disk, "--disk");
      table.disk_text = with_units(options.disk, *table.disk_bytes, units);
    }
    document.add(table);
  }
  return document.text();
}

}  // namespace

void add_options(CLI::App& tables, TablesOptions& options) {
  tables
      .add_option(
          "--model", options.models,
          "presets (`kvlab list --models`) or config.json files, separated by ',' (default: llama-3-8b)")
      ->delimiter(',');
  add_trust_option(tables, options.trust_config);
  tables.add_option("--variants", options.variants,
                    "specs, separated by ';'; {a,b} in a spec makes one of each");
  tables.add_option("--lengths", options.lengths,
                    "tokens: 1024,4096, or 1K..128K for each doubling (default: up to the trained context)");
  tables.add_option("--batch", options.batch, "sequences of each length (default: 1)")
      ->check(CLI::Range(1, 65536));
  tables.add_option(
      "--measure", options.measure,
      "build, fill and count caches up to this size (default: 256MiB); larger ones are computed");
  tables.add_option("--budget", options.budget, "list what fits into 16GiB (or 16GB) instead of growth");
  tables.add_option(
      "--weights", options.weights,
      "weights' part of the budget, e.g. 13.5GB (default: parameters x dtype of the model's file)");
  tables.add_option("--disk", options.disk,
                    "most disk space for files of tiers, e.g. 100GB (default: no limit)");
  add_output_options(tables, options.output);
}

std::string run_tables(const TablesOptions& options) {
  if (!options.weights.empty() && options.budget.empty())
    throw std::invalid_argument("--weights counts against a budget; give --budget, e.g. --budget 16GiB");
  if (!options.disk.empty() && options.budget.empty())
    throw std::invalid_argument(
        "--disk limits files in addition to a memory budget; give --budget, e.g. --budget 16GiB");
  options.output.refuse_existing();
  std::vector<config::Geometry> models;
  for (const std::string& model : options.models)
    models.push_back(config::find_geometry(model, options.trust_config));
  const std::string text = options.budget.empty() ? growth(options, models) : fits(options, models);
  return options.output.deliver(text);
}

std::string model_listing(bool json) {
  nlohmann::ordered_json models = nlohmann::ordered_json::array();
  io::TextTable table;
  table.title = "Geometries in configs/models. Any other Hugging Face config.json works by its path.";
  table.corner = "model";
  table.heads = {{"layers", "with cache"},
                 {"KV", "heads"},
                 {"head", "dim"},
                 {"window"},
                 {"trained", "for"},
                 {"parameters"},
                 {"f16 cache at", "8192 tokens"}};
  const auto number = [](int64_t n) { return n > 0 ? std::to_string(n) : "-"; };
  const Spec f16 = parse_spec("contiguous/f16");
  for (const std::string& name : config::preset_names()) {
    const config::Geometry g = config::preset_geometry(name);
    const std::string all = std::to_string(g.model_layers), keeping = std::to_string(g.layers);
    const std::string local = g.windowed_layers == g.layers ? "" : " in " + std::to_string(g.windowed_layers);
    const int64_t cache = tables::ModelMemory(g, f16, {8192, 1}).predicted_bytes();
    models.push_back({{"name", name},
                      {"layers", g.model_layers},
                      {"cached_layers", g.layers},
                      {"latent_dim", g.latent_dim},
                      {"kv_heads", g.kv_heads},
                      {"head_dim", g.head_dim},
                      {"window", g.window},
                      {"windowed_layers", g.windowed_layers},
                      {"trained_tokens", g.max_positions},
                      {"parameters", g.parameters},
                      {"f16_bytes_at_8192", cache}});
    table.rows.push_back({name,
                          {{keeping == all ? all : keeping + " of " + all},
                           {g.latent_dim > 0 ? "MLA" : std::to_string(g.kv_heads)},
                           {std::to_string(g.head_dim)},
                           {g.window > 0 ? std::to_string(g.window) + local : "-"},
                           {number(g.max_positions)},
                           {number(g.parameters)},
                           {io::human_bytes(cache, io::Units::kBinary)}}});
  }
  return json ? models.dump(1) + "\n" : io::terminal_text(table, std::numeric_limits<size_t>::max());
}

}  // namespace kv::cli
