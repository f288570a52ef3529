// The table of experiments: what a config's `experiment` can name. A new one is one file that defines its row,
// and one line here. Nothing else names an experiment.
#pragma once

#include "harness/experiments/experiment.h"

namespace kv::experiments {

// One a line: the row's name is its name with a k before it.
#define KVLAB_EXPERIMENTS(EXPERIMENT) \
  EXPERIMENT(kDecode)                 \
  EXPERIMENT(kGrowth)                 \
  EXPERIMENT(kPrefill)                \
  EXPERIMENT(kBatch)                  \
  EXPERIMENT(kBudget)                 \
  EXPERIMENT(kCheckpoint)             \
  EXPERIMENT(kQuality)                \
  EXPERIMENT(kRecall)                 \
  EXPERIMENT(kGenerate)               \
  EXPERIMENT(kStream)                 \
  EXPERIMENT(kModel)                  \
  EXPERIMENT(kReplay)

#define KVLAB_DECLARE(name) extern const Experiment name;
KVLAB_EXPERIMENTS(KVLAB_DECLARE)
#undef KVLAB_DECLARE

}  // namespace kv::experiments
