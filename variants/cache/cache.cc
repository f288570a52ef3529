// Joins the stages of a spec into one cache.
//
// A row's way in: retention picks its slot, the codec encodes its unit, placement says where the unit's bytes
// go, storage puts them there. Codecs that encode several rows together, or keep the newest rows raw, go
// through a residual buffer first.
//
// Each concern has its own file: sequences and what they hold (sequence.h), appending (appender.h), attending
// (attender.h), state to bytes and back (serialize.h).
#include "variants/cache/cache.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "kernels/attention.h"
#include "variants/cache/appender.h"
#include "variants/cache/attender.h"
#include "variants/cache/compatibility.h"
#include "variants/cache/serialize.h"
#include "variants/core/scratch.h"

namespace kv {
namespace {

[[noreturn]] void bad_shape(const std::string& what) { throw std::invalid_argument("cache shape: " + what); }

void check_shape(const CacheShape& s) {
  if (s.layers < 1) bad_shape("layers must be at least 1, not " + std::to_string(s.layers));
  if (s.kv_heads < 1) bad_shape("kv_heads must be at least 1, not " + std::to_string(s.kv_heads));
  if (s.q_heads < s.kv_heads || s.q_heads % s.kv_heads != 0) {
    bad_shape("q_heads (" + std::to_string(s.q_heads) + ") must be a multiple of kv_heads (" +
              std::to_string(s.kv_heads) + ")");
  }
  if (s.head_dim < 8 || s.head_dim % 8 != 0 || s.head_dim > kMaxHeadDim) {
    bad_shape("head_dim must be a multiple of 8 from 8 to " + std::to_string(kMaxHeadDim) + ", not " +
              std::to_string(s.head_dim));
  }
  if (s.is_latent() && (s.kv_heads != 1 || s.value_dim % 8 != 0 || s.value_dim > s.head_dim)) {
    bad_shape("latent rows have one kv head, and a value_dim that is a multiple of 8 up to head_dim (" +
              std::to_string(s.head_dim) + "), not " + std::to_string(s.kv_heads) + " and " +
              std::to_string(s.value_dim));
  }
  if (s.max_tokens < 1) bad_shape("max_tokens must be at least 1, not " + std::to_string(s.max_tokens));
  if (s.max_sequences < 1)
    bad_shape("max_sequences must be at least 1, not " + std::to_string(s.max_sequences));
}

class JoinedCache : public Cache {
 public:
  JoinedCache(const Spec& spec, const CacheShape& shape, Memory& memory)
      : stages_(spec, shape, memory),
        sequences_(stages_),
        appender_(stages_, sequences_),
        attender_(stages_, sequences_) {}

  const CacheShape& shape() const override { return stages_.shape; }
  const Spec& spec(int) const override { return stages_.spec; }

  SequenceId add_sequence() override { return sequences_.add(); }
  SequenceId fork(SequenceId from) override { return sequences_.fork(from); }
  void release(SequenceId id) override {
    sequences_.release(id);
    attender_.forget_views();
  }
  std::string refuses_truncation(SequenceId id, int64_t tokens) const override {
    return sequences_.refuses_truncation(id, tokens);
  }
  std::function<void()> prepare_truncation(SequenceId id, int64_t tokens) override {
    return [this, truncate = sequences_.prepare_truncation(id, tokens)] {
      truncate();
      attender_.forget_views();
    };
  }

  std::string refuses_sharing() const override { return unshareable_reason(stages_.spec); }
  int64_t block_tokens() const override { return stages_.placement->block_units() * stages_.unit.rows; }
  SharedBlock hold(SequenceId id, int64_t block) override {
    const std::vector<int64_t>& tokens = sequences_.at(id).tokens;
    if (!refuses_sharing().empty() || block < 0 ||
        *std::min_element(tokens.begin(), tokens.end()) < (block + 1) * block_tokens())
      throw std::logic_error("there is no whole block " + std::to_string(block));
    return stages_.placement->hold(id, block);
  }
  SequenceId adopt(std::span<const SharedBlock> prefix) override { return sequences_.adopt(prefix); }
  int64_t blocks_in_use() const override { return stages_.placement->blocks_in_use(); }
  int64_t compact() override {
    attender_.forget_views();
    return stages_.placement->compact();
  }

  void write(Writer& to, SequenceId id) const override { write_sequence(to, stages_, sequences_, id); }
  SequenceId read(Reader& from, const std::string& what) override {
    return read_sequence(from, stages_, sequences_, what);
  }

  void append(int layer, std::span<const StepInput> inputs) override {
    for (const StepInput& in : inputs) {
      if (appender_.next_slice(layer, in, in.n) < in.n)
        throw std::logic_error("these tokens attend slice by slice; use step()");
    }
    store(layer, inputs);
  }
  void view(int layer, std::span<const StepInput> inputs) override { attender_.view(layer, inputs); }
  void attend(int layer, std::span<const StepInput> inputs) override { attender_.attend(layer, inputs); }
  void step(int layer, std::span<const StepInput> inputs) override;

  int64_t tokens(SequenceId id, int layer) const override { return sequences_.at(id).tokens[layer]; }
  std::vector<Span> spans(SequenceId id, int layer, int head) override;
  std::span<const Span> resident_spans(SequenceId id, int layer, int head) override;
  std::vector<int64_t> kept(SequenceId id, int layer, int head) const override {
    return sequences_.at(id).retention[stages_.index(layer, head)]->tokens_by_slot();
  }
  std::span<const float> removed_mean(SequenceId id, int layer, int head) const override {
    return sequences_.at(id).residual[layer].mean(head);
  }
  std::vector<int64_t> read_slots(SequenceId id, int layer, int head) const override {
    return sequences_.read_slots(id, layer, head);
  }
  int repeats() const override { return stages_.placement->repeats(); }
  std::string kernel() const override { return stages_.storage->kernel(); }
  Memory& memory() const override { return stages_.memory; }

 private:
  // append, once the slices are known.
  void store(int layer, std::span<const StepInput> inputs) {
    attender_.forget_views();
    appender_.store(layer, stages_.hadamard ? stages_.hadamard->rows(inputs) : inputs);
  }
  void step_in_slices(int layer, const StepInput& in);
  std::vector<Span> gather_streamed(SequenceId id, int layer, int head);

  Stages stages_;
  Sequences sequences_;
  Appender appender_;
  Attender attender_;
  Block gathered_;  // copies of what comes in pieces
};

void JoinedCache::step(int layer, std::span<const StepInput> inputs) {
  const auto none = [](const StepInput& in) { return !in.out; };
  if (std::all_of(inputs.begin(), inputs.end(), none) && !stages_.retention.scores) {
    return store(layer, inputs);
  }
  bool whole = std::none_of(inputs.begin(), inputs.end(), none);
  for (const StepInput& in : inputs) whole = appender_.next_slice(layer, in, in.n) == in.n && whole;
  if (whole) {
    store(layer, inputs);
    return attend(layer, inputs);
  }
  appender_.reserve(layer, inputs);  // now, so that a step that runs out of memory changes nothing
  for (const StepInput& in : inputs) step_in_slices(layer, in);
}

// The step of one input whose first slice is known.
void JoinedCache::step_in_slices(int layer, const StepInput& in) {
  const int q_heads = stages_.shape.q_heads, kv_heads = stages_.shape.kv_heads;
  const int64_t d = stages_.shape.head_dim, out_dim = stages_.shape.out_dim();
  std::vector<float> q, k, v, out;
  const auto gather = [&](const float* from, int heads, int64_t first, int64_t n, std::vector<float>& to) {
    to.resize(static_cast<size_t>(heads * n * d));
    for (int h = 0; h < heads; ++h) std::copy_n(from + (h * in.n + first) * d, n * d, to.begin() + h * n * d);
  };
  for (int64_t first = 0; first < in.n;) {
    const int64_t n = sequences_.at(in.sequence).slice[layer].tokens;
    gather(in.q, q_heads, first, n, q);
    gather(in.k, kv_heads, first, n, k);
    gather(stages_.shape.is_latent() ? in.k : in.v, kv_heads, first, n, v);
    out.resize(static_cast<size_t>(q_heads * n * out_dim));
    const bool attends = in.out || sequences_.at(in.sequence).slice[layer].scored;
    const StepInput part{in.sequence,    n,           q.data(),
                         k.data(),       v.data(),    attends ? out.data() : nullptr,
                         in.sink_logits, in.score_cap};
    store(layer, {&part, 1});
    attend(layer, {&part, 1});
    for (int h = 0; in.out && h < q_heads; ++h) {
      std::copy_n(out.begin() + h * n * out_dim, n * out_dim, in.out + (h * in.n + first) * out_dim);
    }
    first += n;
    if (first < in.n) appender_.next_slice(layer, in, in.n - first);
  }
}

std::span<const Span> JoinedCache::resident_spans(SequenceId id, int layer, int head) {
  sequences_.view(id, layer);
  return sequences_.spans(id, layer, head * stages_.placement->repeats());
}

std::vector<Span> JoinedCache::spans(SequenceId id, int layer, int head) {
  const std::span<const Span> resident = resident_spans(id, layer, head);
  std::vector<Span> all = gather_streamed(id, layer, head);
  all.insert(all.end(), resident.begin(), resident.end());
  return stages_.storage->read_back(std::move(all));
}

// Copies of the pieces of one head, in the workspace.
std::vector<Span> JoinedCache::gather_streamed(SequenceId id, int layer, int head) {
  Placement& placement = *stages_.placement;
  std::vector<Span> spans;
  const int64_t streamed = placement.streamed_units(id, layer);
  if (streamed == 0) return spans;
  const UnitLayout& unit = stages_.unit;
  std::byte* to =
      fit(stages_.memory, gathered_,
          static_cast<size_t>(streamed * std::accumulate(unit.bytes.begin(), unit.bytes.end(), int64_t{0})));
  placement.stream(layer, {&id, 1}, [&](size_t, const Piece& piece) {
    std::array<const std::byte*, kPlanes> base{};
    for (int p = 0; p < kPlanes; ++p) {
      if (!piece.base[p]) continue;
      base[p] = to;
      to = std::copy_n(piece.base[p] + head * piece.head_stride[p], piece.units * unit.bytes[p], to);
    }
    spans.push_back(make_span(unit, base, unit.bytes, piece.units * unit.rows));
  });
  return spans;
}

}  // namespace

void Cache::truncate(SequenceId id, int64_t tokens) {
  const std::string reason = tokens < 0 ? "there is no such length" : refuses_truncation(id, tokens);
  if (!reason.empty())
    throw std::invalid_argument("cannot truncate a sequence to " + std::to_string(tokens) +
                                " tokens: " + reason);
  prepare_truncation(id, tokens)();
}

void Cache::save(SequenceId id, const std::string& path) const {
  write_file(path, [&](Writer& to) { write(to, id); });
}

SequenceId Cache::load(const std::string& path) {
  SequenceId id = -1;
  const std::string what = "'" + path + "'";
  read_file(path, [&](Reader& from) {
    id = read(from, what);
    if (from.at_end()) return;
    release(id);
    throw std::invalid_argument("cannot load " + what + ": its length cannot be");
  });
  return id;
}

Snapshot Cache::snapshot(SequenceId id) const {
  return Snapshot(memory(), [&](Writer& to) { write(to, id); });
}

SequenceId Cache::restore(const Snapshot& snapshot) {
  SequenceId id = -1;
  snapshot.read([&](Reader& from) { id = read(from, "the snapshot"); });
  return id;
}

std::unique_ptr<Cache> build_cache(const Spec& spec, const CacheShape& shape, Memory& memory) {
  check_shape(shape);
  const std::string reason = unsupported_reason(spec, shape, memory.gpu());
  if (!reason.empty()) throw std::invalid_argument("'" + spec.print() + "': " + reason);
  return std::make_unique<JoinedCache>(spec, shape, memory);
}

}  // namespace kv
