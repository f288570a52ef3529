// The keys of generate. Each temperature is an arm of a sweep point.
#pragma once

#include "harness/experiments/reading_keys.h"

namespace kv::experiments {

inline const config::Key<std::vector<double>> kTemperatureKey{"temperature",
                                                              config::SharedTable::kMeasure,
                                                              {0.0},
                                                              config::number_list(0.0, 100.0),
                                                              "sampling temperatures; 0 is greedy"};
inline const config::Key<int64_t> kSamplesKey{"samples", config::SharedTable::kMeasure, 1,
                                              config::count(1, 1024),
                                              "texts of each prompt, which is read once"};

}  // namespace kv::experiments
