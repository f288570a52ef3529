#include "harness/experiments.h"

#include <array>
#include <stdexcept>

#include "harness/batch.h"
#include "harness/budget.h"
#include "harness/checkpoint.h"
#include "harness/generate.h"
#include "harness/prefill.h"
#include "harness/quality.h"
#include "harness/stream.h"

namespace kv {
namespace {

constexpr std::array kExperiments = std::to_array<Experiment>({
    {"decode", "steady-state decode at given lengths, hot and cold", timed_keys, run_timed_block},
    {"growth", "from an empty cache to a length, one token at a time, every step", timed_keys,
     run_timed_block},
    {"prefill", "a whole prompt: scores materialised, in chunks, and tiled", prefill_keys, run_prefill_block},
    {"batch", "ragged batches: what padding and fragmentation waste", batch_keys, run_batch_block,
     LengthAxis::kLengths},
    {"budget", "error against bytes, means over the last tokens; retentions at equally many kept tokens",
     variant_keys, run_budget_block},
    {"checkpoint", "save, load, freeze, unfreeze and fork against length", variant_keys,
     run_checkpoint_block},
    {"quality", "a model reads a text: perplexity and divergence from the full f32 cache", variant_keys,
     run_quality_block, LengthAxis::kSeqLen, check_quality},
    {"recall", "a passage comes again at a distance: the loss on its second copy", recall_keys,
     run_recall_block, LengthAxis::kDistance, check_recall},
    {"generate", "a model writes on: where its text leaves the full f32 cache's", generate_keys,
     run_generate_block, LengthAxis::kSeqLen, check_generate},
    {"stream", "a model reads on, far past its trained context: perplexity by position", stream_keys,
     run_stream_block, LengthAxis::kSeqLen, check_stream, /*goes_beyond=*/true},
});

}  // namespace

std::span<const Experiment> experiments() { return kExperiments; }

const Experiment& experiment_named(std::string_view name) {
  for (const Experiment& e : kExperiments) {
    if (e.name == name) return e;
  }
  throw std::logic_error("no experiment '" + std::string(name) + "'");
}

}  // namespace kv
