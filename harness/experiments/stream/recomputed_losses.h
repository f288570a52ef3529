// The stream experiment: a model reads far past its trained context, and its perplexity is reported by position.
//
// Each variant reads the whole stream with its cache, at ever growing positions, or with positions=cache at cache
// positions. A cache that keeps all tokens then meets distances that the model never saw.
//
// The comparison is a window recomputed without any cache: for every `stride` tokens the last `window` are read again
// from position 0 (Xiao et al. 2024, arXiv:2309.17453, figure 1). That costs the most and gives the model's own
// predictions for that window. A cached window differs slightly: its rows were computed when more of the text was
// visible.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "harness/model/model.h"

namespace kv::experiments {

// The losses -log p of ids[1], ids[2], … [ids.size() - 1], nats. Each prediction sees a window that starts at
// position 0: at most `window` tokens, and less than `stride` fewer. 1 <= stride <= window. Calls `go_on` after every
// stride with its tokens; false ends the reading.
std::vector<double> recomputed_losses(
    const model::Model& model, std::span<const int> ids, int64_t window, int64_t stride,
    const std::function<bool(int64_t tokens)>& go_on = [](int64_t) { return true; });

}  // namespace kv::experiments
