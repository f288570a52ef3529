// Intervals and tests of counted successes.
#pragma once

#include <cstdint>

#include "harness/math/stats.h"

namespace kv::math {

// Wilson's score interval (1927), 95 %, of the probability of `successes` in `trials` independent draws; no trials are a bug
// (std::logic_error).
ConfidenceInterval wilson_interval(int64_t successes, int64_t trials);

// McNemar's test (1947) of paired successes, exact: the probability, two-sided, that of all pairs that differ at least as many
// go one way as here, if both ways are equally likely. 1 without such pairs.
double mcnemar_p(int64_t only_first, int64_t only_second);

}  // namespace kv::math
