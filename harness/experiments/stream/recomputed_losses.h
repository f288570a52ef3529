// The stream experiment: a model reads on and on, far past the context it was trained for, and its perplexity
// is reported by position.
//
// Each variant reads the whole stream with its cache, at positions that grow without end, or with
// positions=cache at places in the cache. A cache that keeps all then meets distances that the model never
// saw.
//
// Beside them the window is recomputed, without any cache: for every `stride` tokens the last `window` are
// read again from position 0 (Xiao et al. 2024, arXiv:2309.17453, figure 1). That costs the most, and is what
// the model itself says to that window. A cached window is not quite the same: its rows were computed when
// more of the text could be seen.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "harness/model/model.h"

namespace kv::experiments {

// The losses -log p of ids[1], ids[2], … [ids.size() - 1], nats, where each prediction sees the tokens of a
// window that begins anew at position 0: at most `window` of them, and less than `stride` fewer. 1 <= stride
// <= window. `go_on` is asked after every stride, with its tokens; false ends it there.
std::vector<double> recomputed_losses(
    const model::Model& model, std::span<const int> ids, int64_t window, int64_t stride,
    const std::function<bool(int64_t tokens)>& go_on = [](int64_t) { return true; });

}  // namespace kv::experiments
