#include "harness/logits.h"

#include <vector>

#include "harness/model.h"
#include "harness/paths.h"
#include "harness/safetensors.h"
#include "harness/token_ids.h"

namespace kv {

void write_logits(const LogitsOptions& options) {
  const Model model(find_model(options.model).string());
  const int vocab = model.config().vocab_size;
  const std::vector<int> tokens =
      read_tokens(find_input(options.text, "text").string(), options.tokenizer, vocab);
  const std::vector<float> logits = model.forward(tokens, 0, full_attention(model.config()));
  const NamedTensor tensor{"logits", {static_cast<int64_t>(tokens.size()), vocab}, logits};
  write_safetensors(options.out, {&tensor, 1});
}

}  // namespace kv
