// A real model's own layers as a workload: the queries, keys and values that its forward pass computes from a text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "harness/model/model.h"
#include "harness/workload/workload.h"

namespace kv::workload {

// Runs the model over `tokens` from position 0, `chunk` tokens a call, and keeps q, k and v of every layer; k is
// after RoPE unless `rotary` leaves that to the cache. `attention` is a fresh full_attention, or a cache under test
// whose errors then reach the next layer. Every sequence of the workload reads the same tokens; max_tokens() is
// tokens.size(). It holds tokens * layers * (q_heads + 2 kv_heads) * head_dim floats and no longer needs the model.
// Throws std::invalid_argument for no tokens, chunk < 1, or an input that Model::forward refuses.
std::unique_ptr<Workload> capture(const model::Model& model, std::span<const int> tokens,
                                  const model::Model::Attention& attention, std::string name, int64_t chunk,
                                  model::Rotary rotary = model::Rotary::kTrained);

}  // namespace kv::workload
