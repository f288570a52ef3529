// `kvlab tables`: bytes of models' caches, and the caches that fit into a budget.
#pragma once

#include <string>
#include <vector>

#include "harness/cli/document.h"

namespace CLI {
class App;
}

namespace kv::cli {

struct TablesOptions {
  std::vector<std::string> models = {"llama-3-8b"};  // presets, or paths of config.json files
  bool trust_config = false;                         // as config::read_geometry() does
  std::string variants =
      "contiguous/f32; contiguous/f16; contiguous/q8_0; contiguous/q4_0; contiguous/kivi(bits=2); "
      "contiguous/f16/ring(window=4096)";
  // Tokens: "1024,4096", or "1024..131072" for each doubling. Empty: up to the trained context.
  std::string lengths;
  int batch = 1;
  TableOutput output;
  std::string measure = "256MiB";  // larger caches are computed only
  std::string budget;              // not empty: the budget table, instead of the memory table
  std::string weights;             // part of the budget; empty: as the model's file has it
  std::string disk;                // not empty: limit of files
};

void add_options(CLI::App& app, TablesOptions& options);

// Returns the text to print. Throws std::invalid_argument, or std::runtime_error if `out` cannot be written.
std::string run_tables(const TablesOptions& options);

// The presets and their geometries, for `kvlab list --models`; `json`: as JSON (fields: results/json.md).
std::string model_listing(bool json);

}  // namespace kv::cli
