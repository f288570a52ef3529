// The key of model.
#pragma once

#include "harness/config/key.h"

namespace kv::experiments {

inline const config::Key<std::string> kContextKey{
    "context", config::SharedTable::kMeasure, "prefill", config::choice({"prefill", "synthetic"}),
    "the model reads what precedes the timed steps, or synthetic rows stand for it"};

}  // namespace kv::experiments
