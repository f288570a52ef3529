// `kvlab eval` runs a user's own tensors through variants, token by token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/results/cell_columns.h"

namespace CLI {
class App;
}

namespace kv::cli {

struct EvalOptions {
  std::string example;  // a dump to write, instead of an evaluation
  std::string dump;
  std::string variants;    // specs, separated by ';'
  int64_t prompt = 0;      // the first tokens, as one causal prefill; later ones come singly
  int64_t context = 8192;  // tokens that the errors are to speak of
  std::string out;
  int threads = 0;
  std::string isa = "auto";
  std::string device = "cpu";
  std::string arithmetic = "exact";  // for variants whose codecs can choose
  bool no_plots = false;
};

void add_options(CLI::App& app, EvalOptions& options);

// Token t attends to the kept tokens <= t. Writes cells.csv, heads.csv with the errors of each layer's query heads,
// and outputs.safetensors with one f32 tensor [layers, q_heads, n, head_dim] a spec, under the canonical spec.
// Returns the cells. Throws std::invalid_argument, or std::runtime_error if the disk refuses; then it leaves no
// files.
std::vector<results::Row> run_eval(const EvalOptions& options);

// Writes q [2, 4, 256, 64], k and v [2, 2, 256, 64] in f32 from the synthetic family "outliers": 1 MB. Throws std::invalid_argument
// if the file exists, std::runtime_error if the disk refuses.
void write_example_dump(const std::string& path);

}  // namespace kv::cli
