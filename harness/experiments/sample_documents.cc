#include "harness/experiments/sample_documents.h"

#include <stdexcept>
#include <vector>

#include "harness/io/model_files.h"
#include "harness/memory/ledger.h"
#include "harness/model/cached_model.h"
#include "harness/model/model.h"
#include "harness/model/sampling.h"
#include "harness/model/token_ids.h"
#include "variants/model_cache/layer_groups.h"

namespace kv::experiments {

std::string sample_documents(const SampleOptions& options) {
  const std::string path = io::model_to_read(options.model).string();
  const model::Model model(path);
  const std::string tokenizer = model::tokenizer_for(path, options.tokenizer);
  if (tokenizer.empty())
    throw std::invalid_argument("model " + path + " has no tokenizer.json: give one by --tokenizer");
  if (options.tokens >= model.config().max_tokens) {
    throw std::invalid_argument("--tokens " + std::to_string(options.tokens) +
                                " and the mark before them are past the model's " +
                                std::to_string(model.config().max_tokens) + " positions");
  }
  memory::Ledger ledger;
  const auto cache = build_cache(parse_spec("contiguous"),
                                 cache_shape(model.config(), options.documents, options.tokens + 1), ledger);
  model::CachedModel writer(model, *cache, options.documents);
  const std::vector<int> prompt = io::ids_of_text(tokenizer, options.prompt);
  if (prompt.empty())
    throw std::invalid_argument("--prompt is needed: " + tokenizer + " puts no token before a text");
  std::vector<int> prompts;
  for (int d = 0; d < options.documents; ++d) prompts.insert(prompts.end(), prompt.begin(), prompt.end());
  const std::vector<int> ids = model::continue_prompts(
      writer, prompts, options.tokens + 1, {options.temperature, options.seed}, [] { return false; });
  std::string text;
  for (const io::TextOfTokens& document : io::texts_of_tokens(tokenizer, ids, options.tokens + 1, 0))
    text += document.rest + "\n<|endoftext|>\n";
  return text;
}

}  // namespace kv::experiments
