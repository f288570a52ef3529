// The key of growth.
#pragma once

#include "harness/config/key.h"

namespace kv::experiments {

inline const config::Key<bool> kAttendKey{"attend", config::SharedTable::kMeasure, true, config::flag(),
                                          "false: append and view alone are measured"};

}  // namespace kv::experiments
