#include "harness/cli/calibrate.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <stdexcept>
#include <vector>

#include "harness/cli/typos.h"
#include "harness/io/bytes.h"
#include "harness/io/model_files.h"
#include "harness/model/codebooks.h"
#include "harness/model/model.h"
#include "harness/model/token_ids.h"
#include "kernels/format/vq.h"

namespace kv::cli {

void add_options(CLI::App& app, CalibrateOptions& options) {
  app.add_option("model", options.model, "a Hugging Face folder, a GGUF file, or a name of `kvlab models`")
      ->required();
  app.add_option("--tokenizer", options.tokenizer, "its tokenizer.json (default: the model's)");
  app.add_option("--text", options.text,
                 "text, or token ids (.npy, .u16, .u32) (default: Python's documentation)");
  app.add_option("--from", options.from, "the first token of the text to read, e.g. 4096 or 32K")
      ->transform(token_count())
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--tokens", options.tokens, "tokens to read, e.g. 8192 or 16K")
      ->transform(token_count())
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--window", options.window, "tokens that the model reads at a time")
      ->transform(token_count())
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--codebooks", options.codebooks,
                 "codebooks of 256 words for every 8 values: the most bits per value that vq can then have")
      ->check(CLI::Range(1, kVqMostBits))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "seed of the words that k-means begins with")->capture_default_str();
  app.add_option("--k-order", options.k_order, "order of K's channels, as in workload.k_order")
      ->check(CLI::IsMember({"file", "halves"}))
      ->capture_default_str();
  app.add_option("--out", options.out, "file to write, for vq(file=…)")->required();
}

std::string calibrate(const CalibrateOptions& options) {
  if (std::filesystem::exists(options.out))
    throw std::invalid_argument("--out " + options.out + " already exists; give another name");
  const std::string model_path = io::model_to_read(options.model).string();
  model::Model model(model_path);
  if (options.k_order == "halves") model.order_in_halves();
  const std::vector<int> ids =
      model::read_tokens(io::text_to_read(options.text).string(),
                         model::tokenizer_for(model_path, options.tokenizer), model.config().vocab_size);
  Codebooks books = model::learn_codebooks(model, {.ids = ids,
                                                   .first = options.from,
                                                   .tokens = options.tokens,
                                                   .window = options.window,
                                                   .codebooks = options.codebooks,
                                                   .seed = options.seed});
  books.model = options.model;
  books.text = options.text.empty() ? "Python's documentation" : options.text;
  write_codebooks(options.out, books);
  return options.out + ": codebooks of " + books.of() + ", " + std::to_string(books.codebooks) +
         " for every 8 values, " + io::human_bytes(static_cast<int64_t>(books.words.size() * sizeof(float))) +
         ", from tokens " + std::to_string(options.from) + " to " +
         std::to_string(options.from + options.tokens) + " of " + books.text +
         "\nUse: vq(bits=" + std::to_string(books.codebooks) + ",file=" + options.out +
         ") with full(positions=cache)\n";
}

}  // namespace kv::cli
