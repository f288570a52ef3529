// Intervals and tests of counted successes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "harness/math/stats.h"

namespace kv::math {

// Wilson's score interval (1927), 95 %, of the probability of `successes` in `trials` independent draws; no trials are a bug
// (std::logic_error).
ConfidenceInterval wilson_interval(int64_t successes, int64_t trials);

// McNemar's test (1947) of paired successes, exact: the probability, two-sided, that of all pairs that differ at least as many
// go one way as here, if both ways are equally likely. 1 without such pairs.
double mcnemar_p(int64_t only_first, int64_t only_second);

// Tango's score interval (1998), 95 %, of the difference of two probabilities, the first's less the second's, of `pairs` pairs in which
// the first or the second alone succeeds so often. No pairs are a bug (std::logic_error).
ConfidenceInterval paired_difference_interval(int64_t only_first, int64_t only_second, int64_t pairs);

// Successes of two sides, each in `trials` draws.
struct Stratum {
  int64_t first, second, trials;
};
// Mantel and Haenszel's test (1959), exact: the probability, two-sided, of as large a sum of `first` if both sides succeed equally
// often in each stratum, given the successes of both together.
double stratified_p(std::span<const Stratum> strata);

// Tarone's rule (1990): the comparisons that can be decided, by the least p-value that each could have. With k the smallest number
// that no more than k of them reach level / k, these.
std::vector<bool> decidable(std::span<const double> least_p_values, double level);

}  // namespace kv::math
