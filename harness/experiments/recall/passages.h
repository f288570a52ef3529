// The recall experiment: a passage comes again `distance` tokens later, and only predictions of the second copy
// count: what lies between is forgettable, the first copy is not.
#pragma once

#include <vector>

#include "harness/measure/teacher_forcing.h"

namespace kv::experiments {

// What repeats in the recall experiment, and where.
struct Recall {
  static constexpr int64_t kLead = 40;  // tokens before the first copy
  // Of the second copy, not scored: who reads cannot know yet that it is one.
  static constexpr int64_t kCue = 9;
  int64_t distance, passage;  // tokens from copy to copy, and of one copy
  int64_t length() const { return kLead + distance + passage - 1; }  // that are read
};
// Copies the passage within each sequence of `ids` [sequences, length() + 1] and scores the second.
measure::Passages with_repeat(std::vector<int> ids, int sequences, const Recall& recall);

}  // namespace kv::experiments
