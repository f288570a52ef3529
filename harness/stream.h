// The stream experiment: a model reads on and on, far past the context it was trained for, and its perplexity
// is reported by position.
//
// Each variant reads the whole stream with its cache, at positions that grow without end, or with
// positions=cache at places in the cache. A cache that keeps all then meets distances that the model never
// saw.
//
// Beside them the window is re-computed, without any cache: for every `stride` tokens the last `window` are
// read again from position 0 (Xiao et al. 2024, arXiv:2309.17453, figure 1). That costs the most, and is what
// the model itself says to that window. A cached window is not quite the same: its rows were computed when
// more of the text could be seen.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "harness/block.h"

namespace kv {

// The losses -log p of ids[1], ids[2], … [ids.size() - 1], nats, where each prediction sees the tokens of a
// window that begins anew at position 0: at most `window` of them, and less than `stride` fewer. 1 <= stride
// <= window. `go_on` is asked after every stride, with its tokens; false ends it there.
std::vector<double> recomputed_losses(
    const Model& model, std::span<const int> ids, int64_t window, int64_t stride,
    const std::function<bool(int64_t tokens)>& go_on = [](int64_t) { return true; });

// Throws std::invalid_argument where the model or the text cannot do what the block asks.
void check_stream(const BlockPlan& plan);
std::vector<std::string> stream_keys(const BlockPlan& plan);
std::vector<Row> run_stream_block(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results);

}  // namespace kv
