// `kvlab calibrate` learns codebooks of vq from a model's own K and V over a text.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace kv::cli {

struct CalibrateOptions {
  std::string model, tokenizer, text, out, k_order = "file";
  // The tokens that are read. Those before them are left to what the codebooks are then tested with.
  int64_t from = 32768, tokens = 8192, window = 1024;
  int codebooks = 2;
  uint64_t seed = 1;
};

void add_options(CLI::App& app, CalibrateOptions& options);

// Writes the file of codebooks (variants/core/codebooks.h). Returns a line on it, for the terminal. Throws
// std::invalid_argument for what learn_codebooks() refuses and a file that is there already, and DiskError.
std::string calibrate(const CalibrateOptions& options);

}  // namespace kv::cli
