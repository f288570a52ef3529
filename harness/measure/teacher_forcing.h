// Teacher forcing: caches under test read the same tokens side by side. Every prediction is compared with that of the
// full f32 cache at the same position.
//
// All caches of a group take a step before any takes the next. They read the same tokens with the same weights, so their
// rows lie side by side in the model's products, and weights are read once a step. Caches whose answers have the same bits
// share rows and logits: a prompt that ten policies attend to as a whole is multiplied once. Attention and caches are each
// one's own; threads share out the caches. A reference distribution is compared and discarded, however long the text is.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "harness/measure/prediction.h"
#include "harness/model/cached_model.h"

namespace kv::measure {

// The tokens to read: sequences of equal length, and the positions whose predictions count.
struct Passages {
  int sequences = 1;
  int64_t length = 1;    // tokens that each sequence reads
  std::vector<int> ids;  // [sequences, length + 1]: the last is only predicted
  int64_t first = 0;     // predictions of tokens first + 1, first + 2, … count
  int64_t left_out = 0;  // the last ones, which do not

  int64_t end() const { return length - left_out; }  // of the positions whose predictions count

  int id(int sequence, int64_t at) const { return ids[static_cast<size_t>(sequence * (length + 1) + at)]; }
};

// Tokens [first, first + n) of every sequence: [sequences, n].
std::vector<int> tokens_of_step(const Passages& passages, int64_t first, int64_t n);

// The steps of a reading. One token a step is decode. More tokens a step are faster, and the same if no query sees
// more than decode would show it (agrees_in_chunks).
struct StepSchedule {
  int64_t prompt = 0;  // tokens of the first step; 0: the same as all others
  int64_t step = 1;
  // The full f32 cache alone answers the prompt, and its K, V and queries are given to all others (prefill=full of all codecs,
  // for any retention and selection).
  bool full_prompt = false;
  bool is_full(int64_t first) const { return full_prompt && first == 0 && prompt > 0; }
  int64_t tokens(int64_t first) const { return first == 0 && prompt > 0 ? prompt : step; }
};

// Bytes that a step of `readings` caches beside the reference needs at most for its logits, distributions and activations.
// Steps with more than model::kRowsSideBySide logits are several, one after another, of at most so many or of one cache.
int64_t step_bytes(const model::ModelConfig& config, const StepSchedule& schedule, const Passages& passages,
                   int64_t readings);

// True if a cache must answer steps of several tokens as it answers the same q, k and v in decode. False if rows are
// encoded in groups, since a chunk's first queries see encoded rows that decode would still hold raw, and if the
// first step is cut as a prompt or reads its rows as they came.
bool agrees_in_chunks(const LayerSpecs& specs);

struct Reading {
  Reading(const model::Model& model, Cache& cache, const Passages& passages)
      : decoder(model, cache, passages.sequences),
        predictions(static_cast<size_t>(passages.sequences * passages.length)) {}

  model::CachedModel decoder;
  // [sequences, length]; those before Passages::first are not formed.
  std::vector<Prediction> predictions;
};

// Calls `go_on` after every layer with its share of the step's tokens of a sequence, since a step may be a whole prompt;
// returns false if go_on did, and the readings are then of no further use. A reader whose cache throws stops alone, with the
// exception as its decoder's failure(); what the reference or the model throws is thrown.
bool read_together(const Passages& passages, const StepSchedule& schedule, Reading& reference,
                   std::span<Reading* const> readings, const std::function<bool(double tokens)>& go_on);

// Predictions [sequences, length] of each spec alone, with caches on a GPU if there is one; none at all if `go_on`, called as
// above, returned false. Throws std::bad_alloc.
std::vector<std::vector<Prediction>> read_specs(
    const model::Model& model, const Passages& passages, const StepSchedule& schedule,
    std::span<const LayerSpecs> specs, cuda::Gpu* gpu = nullptr,
    const std::function<bool(double tokens)>& go_on = [](double) { return true; });

}  // namespace kv::measure
