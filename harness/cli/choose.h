// `kvlab choose`: the caches for a model, a context and a memory, found by measurement.
#pragma once

#include <string>

#include "harness/cli/document.h"

namespace CLI {
class App;
}

namespace kv::cli {

struct ChooseOptions {
  std::string model, tokenizer, text;  // as in [workload]
  std::string context, memory;         // "8K", "600MiB"; the caches' alone
  int users = 1;
  double most_loss = 0.01;  // nats above the full f32 cache
  double least_rate = 0;    // tokens a second of each user; 0: any
  double minutes = 0;       // for all that is measured; 0: as long as it takes
  int64_t window = 0;       // tokens of a window of the text; 0: the context
  int windows = 0;          // for calibration, and as many others to confirm; 0: usual_windows()
  bool mixture = false;     // also the solver's formats by layer, from a reading with each alone
  std::string engine;       // considers what this one can express; empty: all caches
  std::string runs;         // a new folder for all runs; empty: in results/local
  TableOutput output;
};

void add_options(CLI::App& app, ChooseOptions& options);

// Measures, prints the table. Returns the exit code. Throws std::invalid_argument, with what would have to give, where no cache keeps the
// limit.
int choose(const ChooseOptions& options);

}  // namespace kv::cli
