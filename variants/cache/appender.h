// Appending: the slices that a step's tokens are stored in, room for them, and their rows into the storage.
#pragma once

#include <span>
#include <vector>

#include "variants/cache/sequence.h"

namespace kv {

class Appender {
 public:
  Appender(Stages& stages, Sequences& sequences) : stages_(stages), sequences_(sequences) {}

  // Asks every head for the first slice of an input's last `remaining` tokens; returns its length. The slice
  // is then the one in progress.
  int64_t next_slice(int layer, const StepInput& in, int64_t remaining);
  // Makes room for all inputs, or throws std::bad_alloc without having changed any sequence. Throws
  // std::logic_error past max_tokens.
  void reserve(int layer, std::span<const StepInput> inputs);
  // Reserves, then stores every input's rows. Slices are not looked at.
  void store(int layer, std::span<const StepInput> inputs);

 private:
  // The inputs' growths of the rows that are placed with this head, into growths_.
  void find_growths(int layer, int head, std::span<const StepInput> inputs);

  Stages& stages_;
  Sequences& sequences_;
  // Kept between steps so that a steady state allocates nothing.
  std::vector<Growth> growths_;
  std::vector<NewRows> rows_;
};

}  // namespace kv
