// KV heads and sizes that files state in another way than by the keys that the others read.
#include "harness/config/layer_rules.h"

namespace kv::config {
namespace {

using nlohmann::json;
using File = ModelSettings;

// The first architecture of Falcon has one KV head whatever else the file says.
void multi_query(File& file) {
  if (file.flag("multi_query", false) && !file.flag("new_decoder_architecture", false))
    file.set(1, "num_key_value_heads");
}

void query_groups(File& file) {
  if (file.flag("multi_query_attention", false))
    file.set(file.count("multi_query_group_num"), "num_key_value_heads");
}

void attention_config(File& file) {
  const ModelSettings attention = file.inner("attn_config");
  if (attention.has("kv_n_heads")) file.set(attention.count("kv_n_heads"), "num_key_value_heads");
  if (attention.text("attn_type", "") == "multiquery_attention") file.set(1, "num_key_value_heads");
  if (attention.has("sliding_window_size") && attention.object()["sliding_window_size"] != -1)
    file.set(attention.count("sliding_window_size"), "sliding_window");
}

// Nemotron-H's newer files leave the number of layers to their list.
void as_many_as_listed(File& file) {
  if (!file.has("num_hidden_layers") && file.has("layers_block_type"))
    file.set(static_cast<int64_t>(file.list("layers_block_type").size()), "num_hidden_layers");
}

// Hymba's values are as wide as its Mamba state's inputs, its keys as other models'. Rows of the mean width have as many bytes.
void mean_of_widths(File& file) {
  if (file.has("head_dim")) return;
  const int64_t heads = file.count("num_attention_heads"), hidden = file.count("hidden_size"),
                values = hidden * file.count("mamba_expand") / heads;
  const json key = file.object().value("kq_head_dim", json(-1));
  const int64_t keys = key.is_number_integer() && key > 0 ? file.count("kq_head_dim") : hidden / heads;
  if (hidden % heads == 0 && (keys + values) % 2 == 0) file.set((keys + values) / 2, "head_dim");
}

// Zamba2's attention is over the hidden state and the embedding together.
void twice_as_wide(File& file) {
  if (file.has("head_dim")) return;
  const int wide = 2 * file.count("hidden_size"), heads = file.count("num_attention_heads");
  if (wide % heads == 0) file.set(wide / heads, "head_dim");
}

}  // namespace

const std::map<std::string, SizeRule>& size_rules() {
  static const std::map<std::string, SizeRule> rules{{"multi_query", multi_query},
                                                     {"query_groups", query_groups},
                                                     {"attention_config", attention_config},
                                                     {"twice_as_wide", twice_as_wide},
                                                     {"as_many_as_listed", as_many_as_listed},
                                                     {"mean_of_widths", mean_of_widths}};
  return rules;
}

}  // namespace kv::config
