// The recall experiment: a passage repeats `distance` tokens later, and only predictions of the second copy count.
// The tokens between may be forgotten; the first copy may not.
#pragma once

#include <vector>

#include "harness/measure/teacher_forcing.h"

namespace kv::experiments {

// The repetition in the recall experiment.
struct Recall {
  static constexpr int64_t kLead = 40;  // tokens before the first copy
  // Unscored beginning of the second copy, in which the repetition cannot be recognised yet.
  static constexpr int64_t kCue = 9;
  int64_t distance, passage;  // tokens from copy to copy, and of one copy
  int64_t length() const { return kLead + distance + passage - 1; }  // tokens read
  // The prediction after token t is of token t + 1.
  int64_t first_scored() const { return kLead + distance + kCue - 1; }
};
// Copies the passage within each sequence of `ids` [sequences, length() + 1] and scores the second.
measure::Passages with_repeat(std::vector<int> ids, int sequences, const Recall& recall);

}  // namespace kv::experiments
