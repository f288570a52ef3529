// Slices, room and rows of the tokens of a step.
#include "variants/cache/appender.h"

#include <stdexcept>
#include <string>

namespace kv {

int64_t Appender::next_slice(int layer, const StepInput& in, int64_t remaining) {
  Sequence& s = sequences_.at(in.sequence);
  for (int head = 0; head < stages_.shape.kv_heads; ++head)
    s.slice[layer] = s.retention[stages_.index(layer, head)]->next(remaining);
  if (!stages_.selection.reads_all()) s.slice[layer].tokens = 1;  // each token chooses for itself
  return s.slice[layer].tokens;
}

void Appender::reserve(int layer, std::span<const StepInput> inputs) {
  for (int head = 0; head < stages_.placed_heads(); ++head) {
    find_growths(layer, head, inputs);
    try {
      stages_.placement->reserve(stages_.place(layer, head).layer, growths_);
    } catch (const std::bad_alloc&) {
      while (head-- > 0) {
        find_growths(layer, head, inputs);
        for (const Growth& g : growths_)
          stages_.placement->trim(g.sequence, stages_.place(layer, head).layer, g.used);
      }
      throw;
    }
  }
}

void Appender::find_growths(int layer, int head, std::span<const StepInput> inputs) {
  growths_.clear();
  for (const StepInput& in : inputs) {
    const Sequence& s = sequences_.at(in.sequence);
    const int64_t tokens = s.tokens[layer];
    if (tokens + in.n > stages_.shape.max_tokens) {
      throw std::logic_error("append of " + std::to_string(in.n) + " tokens to a sequence of " +
                             std::to_string(tokens) +
                             " goes past max_tokens = " + std::to_string(stages_.shape.max_tokens));
    }
    const int64_t used = sequences_.stored_units(s, layer, head);
    const int64_t first = stages_.retention.keeps_all ? used : 0;
    growths_.push_back({in.sequence, first, used, sequences_.stored_units(s, layer, head, tokens + in.n)});
  }
}

void Appender::store(int layer, std::span<const StepInput> inputs) {
  reserve(layer, inputs);
  rows_.clear();
  for (const StepInput& in : inputs) {
    Sequence& s = sequences_.at(in.sequence);
    const std::span heads(s.retention.data() + stages_.index(layer, 0),
                          static_cast<size_t>(stages_.shape.kv_heads));
    const float* v = stages_.shape.is_latent() ? in.k : in.v;
    const size_t together = heads.size() / static_cast<size_t>(stages_.placed_heads());
    for (size_t head = 0; head < heads.size(); head += together) {
      const int64_t at = static_cast<int64_t>(head) * in.n * stages_.shape.head_dim;
      rows_.push_back({.sequence = in.sequence,
                       .layer = stages_.place(layer, static_cast<int>(head)).layer,
                       .first = s.tokens[layer],
                       .n = in.n,
                       .k = in.k + at,
                       .v = v + at,
                       .heads = heads.subspan(head, together),
                       .residual = ResidualBuffer::needed(stages_.codec) ? &s.residual[layer] : nullptr});
    }
  }
  stages_.storage->store(rows_);
  for (const StepInput& in : inputs) sequences_.at(in.sequence).tokens[layer] += in.n;
}

}  // namespace kv
