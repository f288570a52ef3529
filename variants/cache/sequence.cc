// Everything that can fail comes first, so that a sequence is there whole or not at all.
#include "variants/cache/sequence.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "variants/cache/cache.h"
#include "variants/cache/compatibility.h"

namespace kv {

SequenceId Sequences::adopt(std::span<const SharedBlock> prefix) {
  const CacheShape& shape = stages_.shape;
  const SequenceId id = free_id();
  const int64_t tokens = std::ssize(prefix) * stages_.placement->block_units() * stages_.unit.rows;
  Sequence fresh;
  fresh.tokens.assign(static_cast<size_t>(shape.layers), tokens);
  fresh.slice.assign(static_cast<size_t>(shape.layers), {});
  for (int head = 0; head < shape.layers * shape.kv_heads; ++head) {
    fresh.retention.push_back(stages_.retention.make(
        stages_.spec.retention,
        {shape.max_tokens, head, shape.kv_heads, &shape.rope, &stages_.memory, stages_.codec.units()}));
    if (tokens > 0) fresh.retention.back()->truncate(tokens);
  }
  for (int head = 0; !stages_.selection.reads_all() && head < shape.layers * shape.kv_heads; ++head) {
    const SelectionContext context{shape.max_tokens, shape.head_dim, &stages_.memory};
    fresh.selection.push_back({stages_.selection.make(stages_.spec.selection, context), {}});
  }
  for (int i = 0; i < shape.layers; ++i)
    fresh.residual.emplace_back(stages_.codec, stages_.ring, shape.kv_heads, shape.head_dim,
                                shape.is_latent(), stages_.memory);
  add_span_lists(fresh);
  open(id);
  try {
    stages_.placement->adopt(id, prefix);
  } catch (...) {
    stages_.placement->close(id);
    throw;
  }
  fresh.open = true;
  sequences_[id] = std::move(fresh);
  return id;
}

SequenceId Sequences::fork(SequenceId from) {
  const Sequence& parent = at(from);
  Sequence child;
  child.tokens = parent.tokens;
  child.slice = parent.slice;
  for (const auto& state : parent.retention) child.retention.push_back(state->clone());
  for (const ResidualBuffer& rows : parent.residual) child.residual.push_back(rows.clone(stages_.memory));
  for (const HeadSelection& head : parent.selection)
    child.selection.push_back({head.chooser->clone(), head.read});
  std::vector<int64_t> units;
  for (int layer = 0; layer < stages_.shape.layers; ++layer) {
    for (int head = 0; head < stages_.placed_heads(); ++head)
      units.push_back(stored_units(parent, layer, head));
  }
  add_span_lists(child);
  const SequenceId id = free_id();
  open(id);
  try {
    stages_.placement->fork(from, id, units);
  } catch (...) {
    stages_.placement->close(id);
    throw;
  }
  child.open = true;
  sequences_[id] = std::move(child);
  return id;
}

void Sequences::release(SequenceId id) {
  at(id) = Sequence();
  stages_.placement->close(id);
}

std::string Sequences::refuses_truncation(SequenceId id, int64_t tokens) const {
  const Sequence& s = at(id);
  const auto refusal = [](const std::string& who, std::string_view why, int64_t earliest) {
    return who + ": " + std::string(why) + "; no fewer than " + std::to_string(earliest) + " tokens";
  };
  for (int layer = 0; layer < stages_.shape.layers; ++layer) {
    if (tokens >= s.tokens[layer]) continue;
    for (int head = 0; head < stages_.shape.kv_heads; ++head) {
      const int64_t earliest = s.retention[stages_.index(layer, head)]->earliest();
      if (tokens < earliest)
        return refusal("retention '" + stages_.spec.retention.name + "'", stages_.retention.irreversible,
                       earliest);
    }
    const int64_t earliest = s.residual[layer].earliest();
    if (tokens < earliest)
      return refusal("codec '" + stages_.spec.codec.name + "'", irreversible(stages_.codec), earliest);
  }
  return "";
}

std::function<void()> Sequences::prepare_truncation(SequenceId id, int64_t tokens) {
  const Sequence& s = at(id);
  std::vector<std::function<void()>> layers;
  for (int layer = 0; layer < stages_.shape.layers; ++layer) {
    if (tokens >= s.tokens[layer]) continue;
    for (int head = 0; head < stages_.placed_heads(); ++head) {
      const int placed = stages_.place(layer, head).layer;
      layers.push_back(
          stages_.placement->prepare_truncation(id, placed, stored_units(s, layer, head, tokens)));
    }
    layers.push_back([this, id, layer, tokens] {
      Sequence& of = at(id);
      for (int head = 0; head < stages_.shape.kv_heads; ++head) policy(id, layer, head).truncate(tokens);
      of.residual[layer].truncate(tokens);
      for (int head = 0; !of.selection.empty() && head < stages_.shape.kv_heads; ++head) {
        HeadSelection& selection = of.selection[stages_.index(layer, head)];
        selection.chooser->truncate(policy(id, layer, head).slots());
        selection.read.clear();
      }
      of.slice[layer] = {};
      of.tokens[layer] = tokens;
    });
  }
  return [layers = std::move(layers)] {
    for (const auto& truncate : layers) truncate();
  };
}

const Sequence& Sequences::at(SequenceId id) const {
  if (id < 0 || static_cast<size_t>(id) >= sequences_.size() || !sequences_[id].open) {
    throw std::logic_error("no sequence " + std::to_string(id));
  }
  return sequences_[id];
}

int64_t Sequences::stored_units(const Sequence& s, int layer, int head, int64_t tokens) const {
  return stages_.codec.units().encoded(s.retention[stages_.index(layer, head)]->slots_after(tokens));
}

void Sequences::view(SequenceId id, int layer) {
  for (int head = 0; head < stages_.placed_heads(); ++head)
    stages_.placement->view(id, stages_.place(layer, head).layer, stored_units(at(id), layer, head));
}

std::span<const Span> Sequences::spans(SequenceId id, int layer, int read_head) {
  Placement& placement = *stages_.placement;
  const int repeats = placement.repeats(), head = read_head / repeats;
  const Stages::Place place = stages_.place(layer, head);
  Sequence& s = at(id);
  const int64_t rows = stored_units(s, layer, head) * stages_.unit.rows;
  HeadSpans& list = s.spans[static_cast<size_t>(layer * stages_.read_heads() + read_head)];
  if (list.moves != placement.moves(id, place.layer) || list.settled_rows > rows || rows == 0) {
    list.settled = 0;
    list.settled_rows = 0;
    list.moves = placement.moves(id, place.layer);
  }
  list.spans.erase(list.spans.begin() + static_cast<int64_t>(list.settled), list.spans.end());
  if (list.settled == 0) s.residual[layer].first_span(head, list.spans);
  const size_t before = list.spans.size();
  placement.spans(id, place.layer, place.head * repeats + read_head % repeats, list.settled_rows, rows,
                  list.spans);
  if (list.spans.size() > before) {
    list.settled = list.spans.size() - 1;
    list.settled_rows = rows - list.spans.back().rows;
  }
  s.residual[layer].newest_spans(head, list.spans);
  return list.spans;
}

std::vector<int64_t> Sequences::read_slots(SequenceId id, int layer, int head) const {
  const Sequence& s = at(id);
  const size_t index = stages_.index(layer, head);
  const std::vector<RowRange> all{{0, s.retention[index]->slots()}};
  std::vector<int64_t> slots;
  for (const RowRange& range :
       s.selection.empty() || s.selection[index].read.empty() ? all : s.selection[index].read) {
    for (int64_t slot = range.begin; slot < range.end; ++slot) slots.push_back(slot);
  }
  return slots;
}

SequenceId Sequences::free_id() const {
  for (size_t id = 0; id < sequences_.size(); ++id) {
    if (!sequences_[id].open) return static_cast<SequenceId>(id);
  }
  if (sequences_.size() >= static_cast<size_t>(stages_.shape.max_sequences)) {
    throw std::logic_error("more than max_sequences = " + std::to_string(stages_.shape.max_sequences) +
                           " sequences");
  }
  return static_cast<SequenceId>(sequences_.size());
}

void Sequences::open(SequenceId id) {
  if (static_cast<size_t>(id) == sequences_.size()) sequences_.emplace_back();
  stages_.placement->open(id);
}

void Sequences::add_span_lists(Sequence& s) const {
  for (int i = 0; i < stages_.shape.layers * stages_.read_heads(); ++i) s.spans.emplace_back(stages_.memory);
}

}  // namespace kv
