// The families of models that run: one table of what their config.json files leave to the family's class, and what is
// read from those.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "harness/config/model_settings.h"
#include "harness/model/model.h"

namespace kv::model {

enum class FeedForward : uint8_t { kGated, kPlain, kExperts };

struct Family {
  std::string_view type;      // model_type
  std::string_view defaults;  // a JSON object: its class's values for keys that a file lacks
  FeedForward feed_forward = FeedForward::kGated;
  Norm norm = Norm::kRms;
  bool rotary = true;             // else learned positions
  bool norm_offset = false;       // norms multiply by 1 + weight
  bool norm_weights = true;       // else by nothing
  bool embedding_norm = false;    // a norm of the embedding
  bool out_norms = false;         // norms of the outputs of attention and feed-forward
  bool head_norms = false;        // norms of every head's query and key
  bool qkv_bias = false;          // always, and attention_bias is not read
  bool bias_key = true;           // attention_bias is read: biases of q, k, v and o
  bool mlp_bias_key = false;      // mlp_bias is read
  bool scaled_embedding = false;  // by sqrt(hidden_size)
  bool sinks = false;             // a learned logit a query head
  bool backwards = false;         // RoPE turns by negative angles
  bool partial_rotary = false;    // it may turn a part of each head
  bool rope_by_kind = false;      // rope_parameters has one of its own for each kind of layer
  bool gated_heads = false;       // ModelConfig's
  bool linear_layers = false;     // gated DeltaNet
};

struct HuggingFaceConfig {
  const Family* family;
  config::ModelSettings settings;
  ModelConfig model;
};

// The config.json of a text model, or the text_config of a multimodal one. Throws std::invalid_argument: one line with the
// file, what is wrong or not implemented, and what would be right.
HuggingFaceConfig read_hugging_face_config(const std::string& path);

// True if its model_type is one of the table's.
bool is_of_known_family(const std::string& path);

}  // namespace kv::model
