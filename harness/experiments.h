// The table of experiments: what a config's `experiment` can name. A new one is a file with its block's keys
// and run, and a line here.
#pragma once

#include <span>
#include <string_view>

#include "harness/block.h"

namespace kv {

// Which axis says how long sequences are.
enum class LengthAxis { kSeqLen, kLengths, kDistance };

struct Experiment {
  std::string_view name;
  std::string_view help;
  // The keys of all cells of a block, known before it runs.
  std::vector<std::string> (*keys)(const BlockPlan& plan);
  // Measures a block and returns its rows in order; samples go to `results` as they are taken. Empty if it
  // was stopped.
  std::vector<Row> (*run)(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results);
  LengthAxis axis = LengthAxis::kSeqLen;
  // Of experiments that run a model: throws std::invalid_argument, before anything is written, for a block
  // that the model or its text cannot give.
  void (*check)(const BlockPlan& plan) = nullptr;
  // Its sequences may be longer than the context that the model was trained for.
  bool goes_beyond = false;
  bool needs_model() const { return check != nullptr; }
};

std::span<const Experiment> experiments();
// Throws std::logic_error for a name that load_config would have refused.
const Experiment& experiment_named(std::string_view name);

}  // namespace kv
