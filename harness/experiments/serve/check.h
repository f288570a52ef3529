// The requests of a run served alone, and whether a run's answers are theirs.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "harness/experiments/serve/serving.h"

namespace kv::experiments {

// Greedy answers of each request, alone in a cache of its own, its prompt whole. Fewer where `stop` says so.
std::vector<std::vector<int>> answers_alone(const ServingSetup& setup,
                                            std::span<const ServedRequest> requests,
                                            const std::function<bool()>& stop);

struct AnswerCheck {
  int64_t rounded = 0;  // answers that leave the one alone at a token whose margin is within rounding
  std::string failure;  // the first that leaves it elsewhere; empty: none
};

// Compares answers with those alone. Sums of a step round otherwise than those of another, and a codec may then choose
// another level: an answer may leave the other one where the margin of its token is below twice the largest difference of
// a logit between the readings of the same tokens alone, whole, in chunks and one by one. A refused request has no answer.
AnswerCheck check_answers(const ServingSetup& setup, std::span<const ServedRequest> requests,
                          std::span<const std::vector<int>> alone, std::span<const std::vector<int>> served);

}  // namespace kv::experiments
