// The quality and recall experiments: what a cache does to a model's predictions, against the full f32 cache
// on the same tokens.
//
//   quality  `batch` disjoint windows of `seq_len` tokens of the text, each read from an empty cache
//   recall   a passage comes again `distance` tokens later, and only predictions of the second copy count:
//            what lies between is forgettable, the first copy is not
#pragma once

#include <string>
#include <vector>

#include "harness/block.h"
#include "harness/reading.h"

namespace kv {

// The first `sequences` disjoint windows of `length` tokens, whose last predictions are of the tokens that
// follow. Throws std::invalid_argument if the text, called `name`, is too short.
Passages text_windows(std::span<const int> text, int sequences, int64_t length,
                      const std::string& name = "the text");
// The same of a block's own text.
Passages text_windows(const BlockPlan& plan, int64_t length);

// What repeats in the recall experiment, and where.
struct Recall {
  static constexpr int64_t kLead = 40;  // tokens before the first copy
  // Of the second copy, not scored: who reads cannot know yet that it is one.
  static constexpr int64_t kCue = 9;
  int64_t distance, passage;  // tokens from copy to copy, and of one copy
  int64_t length() const { return kLead + distance + passage - 1; }  // that are read
};
// Copies the passage within each sequence of `ids` [sequences, length() + 1] and scores the second.
Passages with_repeat(std::vector<int> ids, int sequences, const Recall& recall);

// Of a cell that was read `step` tokens at a time: says so, and by how much a loss differs from decode's at
// most. Fails the cell where that is more than rounding, though the two must agree.
void record_chunks(LiveCell& cell, int64_t step, double difference);

// Throw std::invalid_argument, before anything is written, where the model or the text cannot do what the
// block asks.
void check_quality(const BlockPlan& plan);
void check_recall(const BlockPlan& plan);
std::vector<std::string> recall_keys(const BlockPlan& plan);
std::vector<Row> run_quality_block(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results);
std::vector<Row> run_recall_block(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results);

}  // namespace kv
