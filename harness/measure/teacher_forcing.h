// Teacher forcing: caches under test read the same tokens side by side, and every prediction is compared with
// that of the full f32 cache at the same place.
//
// All caches of a group take a step before any takes the next, so that a reference distribution is compared
// and forgotten, however long the text is, and what drifts on the machine hits all alike. Every cache's step
// runs on one thread; the caches are what is shared out over threads.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "harness/measure/prediction.h"
#include "harness/model/cached_model.h"

namespace kv::measure {

// What is read: sequences of equal length, and where their predictions count.
struct Passages {
  int sequences = 1;
  int64_t length = 1;    // tokens that a sequence reads
  std::vector<int> ids;  // [sequences, length + 1]: the last is only predicted
  int64_t first = 0;     // predictions of tokens first + 1, first + 2, … count

  int id(int sequence, int64_t at) const { return ids[static_cast<size_t>(sequence * (length + 1) + at)]; }
};

// Tokens [first, first + n) of every sequence: [sequences, n].
std::vector<int> tokens_of_step(const Passages& passages, int64_t first, int64_t n);

// How it is read. With 1 token a step this is decode; more tokens a step are faster, and the same wherever a
// query may see only what decode would show it (agrees_in_chunks).
struct StepSchedule {
  int64_t prompt = 0;  // tokens of the first step; 0: as all others
  int64_t step = 1;
  int64_t tokens(int64_t first) const { return first == 0 && prompt > 0 ? prompt : step; }
};

// Whether a cache must answer steps of several tokens as it answers the same q, k and v in decode: not if rows
// are encoded a group at a time (a chunk's first queries then see encoded what decode would still have raw), or if
// the first step is cut as a prompt.
bool agrees_in_chunks(const LayerSpecs& specs);

struct Reading {
  Reading(const model::Model& model, Cache& cache, const Passages& passages)
      : decoder(model, cache, passages.sequences),
        predictions(static_cast<size_t>(passages.sequences * passages.length)) {}

  model::CachedModel decoder;
  std::vector<Prediction> predictions;  // [sequences, length]
  double seconds = 0;                   // in the model and its cache
  std::exception_ptr failure;           // why it stopped early
};

// After every step `go_on` is asked, with the step's tokens of a sequence; returns false where it did.
// Readers that run out of memory stop alone; the reference's std::bad_alloc is thrown.
bool read_together(const Passages& passages, const StepSchedule& schedule, Reading& reference,
                   std::span<Reading* const> readings, const std::function<bool(int64_t tokens)>& go_on);

// Predictions [sequences, length] of each spec, from the specs alone, with caches on a GPU if there is one. Throws std::bad_alloc.
std::vector<std::vector<Prediction>> read_specs(const model::Model& model, const Passages& passages,
                                                const StepSchedule& schedule,
                                                std::span<const LayerSpecs> specs, cuda::Gpu* gpu = nullptr);

}  // namespace kv::measure
