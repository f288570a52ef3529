// Verdicts on answers, over all cells of a run.
#pragma once

#include <span>

#include "harness/results/row.h"

namespace kv::experiments {

// Compares each variant's answers with the full f32 cache's over all questions of a configuration, at every usable depth and
// length: paired (McNemar, exact), all verdicts of a configuration right together with 95 % (Holm) over the variants that some
// answers could decide (Tarone). Sets the pooled columns and the verdicts of `cells`, from their other columns alone.
void judge_tasks(std::span<results::Row* const> cells);

}  // namespace kv::experiments
