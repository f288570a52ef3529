#include "harness/experiments/sample_documents.h"

#include <span>
#include <stdexcept>
#include <vector>

#include "harness/io/model_files.h"
#include "harness/io/paths.h"
#include "harness/memory/ledger.h"
#include "harness/model/cached_model.h"
#include "harness/model/model.h"
#include "harness/model/sampling.h"
#include "variants/model_cache/layer_groups.h"

namespace kv::experiments {

std::string sample_documents(const SampleOptions& options) {
  const model::Model model(io::model_to_read(options.model).string());
  const model::Tokenizer tokenizer(io::find_input(options.tokenizer, "tokenizer").string(),
                                   model.config().vocab_size);
  if (options.tokens >= model.config().max_tokens) {
    throw std::invalid_argument("--tokens " + std::to_string(options.tokens) +
                                " and the mark before them are past the model's " +
                                std::to_string(model.config().max_tokens) + " positions");
  }
  memory::Ledger ledger;
  const auto cache = build_cache(parse_spec("contiguous"),
                                 cache_shape(model.config(), options.documents, options.tokens + 1), ledger);
  model::CachedModel writer(model, *cache, options.documents);
  const std::vector<int> prompt = tokenizer.encode(options.prompt);
  std::vector<int> prompts;
  for (int d = 0; d < options.documents; ++d) prompts.insert(prompts.end(), prompt.begin(), prompt.end());
  const std::vector<int> ids = model::continue_prompts(
      writer, prompts, options.tokens + 1, {options.temperature, options.seed}, [] { return false; });
  std::string text;
  for (int d = 0; d < options.documents; ++d) {
    const auto document =
        std::span(ids).subspan(static_cast<size_t>(d) * static_cast<size_t>(options.tokens + 1),
                               static_cast<size_t>(options.tokens + 1));
    text += model::printable(tokenizer.decode(document)) + "\n<|endoftext|>\n";
  }
  return text;
}

}  // namespace kv::experiments
