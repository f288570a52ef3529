// The key of model.
#pragma once

#include "harness/config/key.h"

namespace kv::experiments {

inline const config::Key<std::string> kContextKey{
    "context", config::SharedTable::kMeasure, "prefill", config::choice({"prefill", "synthetic"}),
    "context before the timed steps: read by the model, or synthetic rows"};

}  // namespace kv::experiments
