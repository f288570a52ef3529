// The order of the bytes: identity, then each layer's tokens, policies, residual rows and units.
#include "variants/cache/serialize.h"

#include <sstream>
#include <stdexcept>

#include "variants/cache/cache.h"

namespace kv {
namespace {

// Rows on their way to and from a file or a snapshot, whose bytes are the host's.
class RowWriter : public Writer {
 public:
  RowWriter(Writer& to, Storage& storage) : to_(to), storage_(storage) {}
  void write(const std::byte* rows, size_t bytes) override { storage_.write_rows(to_, rows, bytes); }

 private:
  Writer& to_;
  Storage& storage_;
};

class RowReader : public Reader {
 public:
  RowReader(Reader& from, Storage& storage) : from_(from), storage_(storage) {}
  void read(std::byte* rows, size_t bytes) override { storage_.read_rows(from_, rows, bytes); }

 private:
  Reader& from_;
  Storage& storage_;
};

// Cached keys have not met RoPE where they are rotated when they are read, so going on with another RoPE
// would go unnoticed. Files hold this text, so its words stay.
std::string rope_identity(const Rope& r) {
  std::ostringstream text;
  text << ", RoPE of theta " << r.theta
       << (r.pairs == RopePairs::kHalfSplit ? " in halves" : " in neighbours");
  if (r.factor != 1.0)
    text << " slowed by " << r.factor << " (" << r.low << ", " << r.high << ", " << r.trained_tokens << ")";
  if (r.mix != RopeMix::kByRotations || r.amplitude != 1.0)
    text << " by YaRN (" << static_cast<int>(r.mix) << ", " << r.amplitude << ")";
  if (r.backwards) text << " backwards";
  if (r.rotated > 0) text << " of " << r.rotated << " channels";
  return text.str();
}

// The spec as a sequence knows it, whatever room its cache has: shares of max_tokens are rows.
Spec spec_of_sequence(const Stages& stages) {
  Spec spec = stages.spec;
  const auto settle = [&](Stage& stage, const Entry& entry) {
    for (const Parameter& p : entry.parameters) {
      const std::string name(p.name);
      if (p.is_capacity) stage.values[name] = p.fallback;
      if (p.kind == Parameter::Kind::kRows)
        stage.values[name] = std::to_string(stage.rows(name, stages.shape.max_tokens));
    }
  };
  settle(spec.placement, placement_of(spec));
  settle(spec.retention, retention_of(spec));
  settle(spec.selection, selection_of(spec));
  return spec;
}

// The text that must be equal for a sequence to fit: the spec, and all of the shape but the room for tokens and sequences.
std::string identity(const Stages& stages) {
  const CacheShape& s = stages.shape;
  return spec_of_sequence(stages).print() + " with " + std::to_string(s.layers) + " layers, " +
         std::to_string(s.q_heads) + " query heads, " + std::to_string(s.kv_heads) + " kv heads, head_dim " +
         std::to_string(s.head_dim) + (s.is_latent() ? ", latent of " + std::to_string(s.value_dim) : "") +
         (stages.rotated ? rope_identity(s.rope) : "");
}

constexpr size_t kMostIdentity = 1 << 16;  // bytes

// Calls visit(data, bytes) for every plane of units [begin, end) of a head and of those that are placed with it.
template <class Visit>
void for_each_unit(const Stages& stages, SequenceId id, int layer, int head, int64_t begin, int64_t end,
                   Visit visit) {
  const int together = stages.shape.kv_heads / stages.placed_heads();
  for (const int last = head + together; head < last; ++head) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const UnitAddress at = stages.at(id, layer, head, unit);
      for (int p = 0; p < kPlanes; ++p) {
        if (stages.unit.bytes[p] > 0) visit(at.plane[p], static_cast<size_t>(stages.unit.bytes[p]));
      }
    }
  }
}

// The same for what comes in pieces.
void write_piece(Writer& to, const Stages& stages, const Piece& piece) {
  const UnitLayout& layout = stages.unit;
  for (int head = 0; head < stages.shape.kv_heads; ++head) {
    for (int64_t unit = 0; unit < piece.units; ++unit) {
      for (int p = 0; p < kPlanes; ++p) {
        const std::byte* data = piece.base[p] + head * piece.head_stride[p] + unit * layout.bytes[p];
        if (layout.bytes[p] > 0) to.write(data, static_cast<size_t>(layout.bytes[p]));
      }
    }
  }
}

// Numbers from a file say where rows go, so each is checked before it is used: a checksum shows damage, not intent.
void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(std::string("its ") + what + " cannot be");
}

// Piece by piece where they were written so, that no more is in memory at once than when it was saved.
void read_units(RowReader& rows, Stages& stages, SequenceId id, int layer, int head, int64_t units,
                int64_t streamed) {
  const int64_t piece = kSplitRows / stages.unit.rows;
  const int placed = stages.place(layer, head).layer;
  require(streamed >= 0 && streamed <= units && streamed % piece == 0, "number of streamed rows");
  for (int64_t done = 0, next; done < units; done = next) {
    next = done < streamed ? done + piece : units;
    const Growth growth{.sequence = id, .first = done, .used = done, .units = next};
    stages.placement->reserve(placed, {&growth, 1});
    require(stages.placement->streamed_units(id, placed) <= done, "number of streamed rows");
    for_each_unit(stages, id, layer, head, done, next,
                  [&](std::byte* data, size_t bytes) { rows.read(data, bytes); });
  }
}

void read_layer(Reader& from, Stages& stages, Sequences& sequences, SequenceId id, int layer) {
  Sequence& s = sequences.at(id);
  RowReader rows(from, *stages.storage);
  const auto tokens = from.get<int64_t>();
  require(tokens >= 0, "number of tokens");
  if (tokens > stages.shape.max_tokens)
    throw std::invalid_argument("it holds a sequence of " + std::to_string(tokens) +
                                " tokens; this cache takes up to " + std::to_string(stages.shape.max_tokens));
  s.tokens[layer] = tokens;
  for (int head = 0; head < stages.shape.kv_heads; ++head)
    require(sequences.policy(id, layer, head).load(from, tokens), "table of kept tokens");
  s.residual[layer].advance(tokens);
  s.residual[layer].load(rows);
  const auto streamed = from.get<int64_t>();
  for (int head = 0; head < stages.placed_heads(); ++head)
    read_units(rows, stages, id, layer, head, sequences.stored_units(s, layer, head), streamed);
}

}  // namespace

void write_sequence(Writer& to, const Stages& stages, const Sequences& sequences, SequenceId id) {
  const Sequence& s = sequences.at(id);
  to.put_text(identity(stages));
  for (int layer = 0; layer < stages.shape.layers; ++layer) {
    to.put(s.tokens[layer]);
    for (int head = 0; head < stages.shape.kv_heads; ++head) s.retention[stages.index(layer, head)]->save(to);
    RowWriter rows(to, *stages.storage);
    s.residual[layer].save(rows);
    // Every row where its age has it: that is where it will be expected.
    Placement& placement = *stages.placement;
    if (placement.has_tiers()) placement.view(id, layer, sequences.stored_units(s, layer, 0));
    const int64_t streamed = placement.streamed_units(id, layer);
    to.put(streamed);
    placement.stream(layer, {&id, 1}, [&](size_t, const Piece& piece) { write_piece(to, stages, piece); });
    for (int head = 0; head < stages.placed_heads(); ++head) {
      for_each_unit(stages, id, layer, head, streamed, sequences.stored_units(s, layer, head),
                    [&](const std::byte* data, size_t bytes) { rows.write(data, bytes); });
    }
  }
}

SequenceId read_sequence(Reader& from, Stages& stages, Sequences& sequences, const std::string& what) {
  SequenceId id = -1;
  try {
    const std::string written = from.get_text(kMostIdentity);
    if (written != identity(stages)) {
      throw std::invalid_argument("it holds a sequence of " + written + "; this cache is " +
                                  identity(stages));
    }
    id = sequences.add();
    for (int layer = 0; layer < stages.shape.layers; ++layer) read_layer(from, stages, sequences, id, layer);
    return id;
  } catch (const std::invalid_argument& e) {
    if (id >= 0) sequences.release(id);
    throw std::invalid_argument("cannot load " + what + ": " + e.what());
  } catch (...) {
    if (id >= 0) sequences.release(id);
    throw;
  }
}

}  // namespace kv
