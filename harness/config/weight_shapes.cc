#include "harness/config/weight_shapes.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "harness/config/model_types.h"

namespace kv::config {
namespace {

// Families whose MLP has no gate, and families whose classifier is the embedding by default.
constexpr std::array<std::string_view, 3> kUngated{"gpt2", "falcon", "phi"};
constexpr std::array<std::string_view, 6> kTied{"gemma",   "gemma2", "gemma3_text",
                                                "smollm3", "gpt2",   "falcon"};
constexpr std::array kExperts{"num_local_experts", "num_experts", "n_routed_experts"};

template <size_t n>
bool among(const std::array<std::string_view, n>& families, const ModelSettings& file) {
  return std::find(families.begin(), families.end(), file.text("model_type", "")) != families.end();
}

}  // namespace

WeightShapes read_weight_shapes(const std::string& path) {
  const ModelSettings file = read_model_file(path).settings;
  for (const char* key : kExperts) {
    if (file.has(key))
      file.refuse("'" + std::string(key) +
                  "': random weights are for dense models, and this one has experts");
  }
  WeightShapes s{.hidden = file.count("hidden_size"),
                 .intermediate = file.count("intermediate_size"),
                 .vocab = file.count("vocab_size"),
                 .gated = !among(kUngated, file),
                 .tied = file.flag("tie_word_embeddings", among(kTied, file))};
  if (!file.has("linear_num_value_heads")) return s;
  const int64_t keys = int64_t{file.count("linear_num_key_heads")} * file.count("linear_key_head_dim"),
                values = int64_t{file.count("linear_num_value_heads")} * file.count("linear_value_head_dim");
  s.recurrent_out = values;
  s.convolved = 2 * keys + values;
  s.convolution_kernel =
      file.has("linear_conv_kernel_dim") ? file.count("linear_conv_kernel_dim") : 4;  // Qwen3-Next's
  return s;
}

}  // namespace kv::config
