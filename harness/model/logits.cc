#include "harness/model/logits.h"

#include <vector>

#include "harness/io/model_files.h"
#include "harness/io/paths.h"
#include "harness/io/safetensors.h"
#include "harness/model/model.h"
#include "harness/model/token_ids.h"

namespace kv::model {

void write_logits(const LogitsOptions& options) {
  const std::string model_path = io::model_to_read(options.model).string();
  const Model model(model_path);
  const int vocab = model.config().vocab_size;
  const std::vector<int> tokens = read_tokens(io::find_input(options.text, "text").string(),
                                              tokenizer_for(model_path, options.tokenizer), vocab);
  const std::vector<float> logits =
      model.forward(tokens, 0, full_attention(model.config()), Rotary::kTrained, full_recurrence(model));
  const io::NamedTensor tensor{"logits", {static_cast<int64_t>(tokens.size()), vocab}, logits};
  io::write_safetensors(options.out, {&tensor, 1});
}

}  // namespace kv::model
