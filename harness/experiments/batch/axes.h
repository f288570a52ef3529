// The axes and keys of batch.
#pragma once

#include "harness/config/key.h"
#include "harness/config/request_lengths.h"
#include "harness/experiments/batch/columns.h"

namespace kv::experiments {

inline const config::Axis<std::string> kLengthsAxis{kLengths,
                                                    "lengths",
                                                    config::SharedTable::kSweep,
                                                    {},
                                                    config::text_list(config::check_lengths),
                                                    "tokens of each sequence: a list, or how they are drawn",
                                                    "lengths = [\"16,32,500\", \"uniform(16,512)\"]"};
inline const config::Key<bool> kPaddingKey{"padding", config::SharedTable::kMeasure, false, config::flag(),
                                           "true: also times padding to the longest length"};

}  // namespace kv::experiments
