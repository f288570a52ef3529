// The stream experiment: a model reads on and on, far past the context it was trained for, and its perplexity
// is reported by position.
//
//   variants     each reads the whole stream with its cache, at positions that grow without end (what keeps
//   all
//                tokens then meets angles that the model never saw), or with positions=cache at places in the
//                cache
//   recompute    no cache: for every `stride` tokens the last `window` are read again from position 0.
//   Nothing is
//                better with that window, and nothing costs more (Xiao et al. 2024, arXiv:2309.17453, figure
//                1)
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/block.h"

namespace kv {

// The losses -log p of ids[1], ids[2], … [ids.size() - 1], nats, where each prediction sees the tokens of a
// window that begins anew at position 0: at most `window` of them, and less than `stride` fewer. 1 <= stride
// <= window.
std::vector<double> recomputed_losses(const Model& model, std::span<const int> ids, int64_t window,
                                      int64_t stride);

// Throws std::invalid_argument where the model or the text cannot do what the block asks.
void check_stream(const BlockPlan& plan);
std::vector<std::string> stream_keys(const BlockPlan& plan);
std::vector<Row> run_stream_block(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results);

}  // namespace kv
