// The table of experiments, the values of a config's `experiment`. A new experiment is a folder whose run.cc defines
// its row, and one line here. Nothing else names an experiment.
#pragma once

#include "harness/experiments/experiment.h"

namespace kv::experiments {

// One row a line, named k and its name.
#define KVLAB_EXPERIMENTS(EXPERIMENT) \
  EXPERIMENT(kDecode)                 \
  EXPERIMENT(kGrowth)                 \
  EXPERIMENT(kPrefill)                \
  EXPERIMENT(kBatch)                  \
  EXPERIMENT(kBudget)                 \
  EXPERIMENT(kCheckpoint)             \
  EXPERIMENT(kQuality)                \
  EXPERIMENT(kSensitivity)            \
  EXPERIMENT(kRecall)                 \
  EXPERIMENT(kTask)                   \
  EXPERIMENT(kGenerate)               \
  EXPERIMENT(kStream)                 \
  EXPERIMENT(kModel)                  \
  EXPERIMENT(kReplay)                 \
  EXPERIMENT(kServe)                  \
  EXPERIMENT(kSpeculate)

#define KVLAB_DECLARE(name) extern const Experiment name;
KVLAB_EXPERIMENTS(KVLAB_DECLARE)
#undef KVLAB_DECLARE

}  // namespace kv::experiments
