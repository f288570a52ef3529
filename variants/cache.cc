// Joins the three stages of a spec into one cache.
//
// A row's way in: retention picks its slot, the codec encodes its unit, placement says where the unit's bytes
// go. Codecs that encode several rows together, or keep the newest rows raw, go through a Tail first.
#include "variants/cache.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "kernels/attention.h"
#include "kernels/encoding.h"
#include "variants/build.h"
#include "variants/gpu_engine.h"
#include "variants/layout.h"
#include "variants/list.h"
#include "variants/scratch.h"
#include "variants/tail.h"
#include "variants/turned_rows.h"
#include "variants/unit_batch.h"

namespace kv {
namespace {

// Below this many elements a parallel loop costs more than it saves.
constexpr int64_t kParallelElements = 1 << 16;

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
  if (s.max_tokens < 1) bad_shape("max_tokens must be at least 1, not " + std::to_string(s.max_tokens));
  if (s.max_sequences < 1)
    bad_shape("max_sequences must be at least 1, not " + std::to_string(s.max_sequences));
}

// The spans of one head, kept from step to step: only the end of the list is made anew, so that a step over
// many small blocks does not rebuild thousands of them.
struct HeadSpans {
  explicit HeadSpans(Memory& memory) : spans(WorkspaceAllocator<Span>(memory)) {}
  SpanList spans;
  size_t settled = 0;  // spans that the next append will not touch, and their rows
  int64_t settled_rows = 0;
  int64_t moves = 0;  // of the placement, when they were made
};

// Rows on their way to and from a file or a snapshot, which are the host's.
class RowWriter : public Writer {
 public:
  RowWriter(Writer& to, cuda::Gpu* gpu) : to_(to), gpu_(gpu) {}
  void write(const std::byte* data, size_t bytes) override {
    if (!gpu_) return to_.write(data, bytes);
    staged_.resize(bytes);
    gpu_->copy(staged_.data(), data, bytes);
    to_.write(staged_.data(), bytes);
  }

 private:
  Writer& to_;
  cuda::Gpu* gpu_;
  std::vector<std::byte> staged_;
};

class RowReader : public Reader {
 public:
  RowReader(Reader& from, cuda::Gpu* gpu) : from_(from), gpu_(gpu) {}
  void read(std::byte* data, size_t bytes) override {
    if (!gpu_) return from_.read(data, bytes);
    staged_.resize(bytes);
    from_.read(staged_.data(), bytes);
    gpu_->copy(data, staged_.data(), bytes);
  }

 private:
  Reader& from_;
  cuda::Gpu* gpu_;
  std::vector<std::byte> staged_;
};

struct Sequence {
  bool open = false;
  std::vector<int64_t> tokens;                        // [layers]
  std::vector<Slice> slice;                           // [layers] the one in progress
  std::vector<std::unique_ptr<Retention>> retention;  // [layers * kv_heads]
  std::vector<Tail> tail;                             // [layers], where the codec needs one
  std::vector<HeadSpans> spans;                       // [layers * kv_heads]
};

class CacheImpl : public Cache {
 public:
  CacheImpl(const Spec& spec, const CacheShape& shape, Memory& memory)
      : spec_(spec),
        shape_(shape),
        memory_(memory),
        codec_(codec_of(spec).make(spec.codec)),
        unit_(unit_layout(codec_, shape.head_dim)) {
    const int64_t slots = retention_of(spec).slots(spec.retention, {shape.max_tokens, shape.max_tokens});
    placement_ = placement_of(spec).make(spec.placement, placement_context(shape, unit_, slots, &memory_));
    if (turns_rows(spec)) turned_.emplace(shape.rope, shape.head_dim, memory_);
    if (memory.gpu()) gpu_.emplace(memory, codec_, shape.head_dim);
  }

  const CacheShape& shape() const override { return shape_; }
  const Spec& spec() const override { return spec_; }

  SequenceId add_sequence() override {
    const SequenceId id = free_id();
    Sequence fresh;
    fresh.tokens.assign(static_cast<size_t>(shape_.layers), 0);
    fresh.slice.assign(static_cast<size_t>(shape_.layers), {});
    for (int head = 0; head < shape_.layers * shape_.kv_heads; ++head) {
      fresh.retention.push_back(
          retention_of(spec_).make(spec_.retention, {shape_.max_tokens, head, &memory_}));
    }
    if (Tail::needed(codec_)) {
      for (int i = 0; i < shape_.layers; ++i)
        fresh.tail.emplace_back(codec_, shape_.kv_heads, shape_.head_dim, memory_);
    }
    add_span_lists(fresh);
    open(id);
    fresh.open = true;
    sequences_[id] = std::move(fresh);
    return id;
  }

  SequenceId fork(SequenceId from) override {
    const Sequence& parent = sequence(from);
    Sequence child;
    child.tokens = parent.tokens;
    child.slice = parent.slice;
    for (const auto& state : parent.retention) child.retention.push_back(state->clone());
    for (const Tail& tail : parent.tail) child.tail.push_back(tail.clone(memory_));
    std::vector<int64_t> units;
    for (int layer = 0; layer < shape_.layers; ++layer)
      units.push_back(stored_units(parent, layer, parent.tokens[layer]));
    add_span_lists(child);
    const SequenceId id = free_id();
    open(id);
    try {
      placement_->fork(from, id, units);
    } catch (...) {
      placement_->close(id);
      throw;
    }
    child.open = true;
    sequences_[id] = std::move(child);
    return id;
  }

  void release(SequenceId id) override {
    sequence(id) = Sequence();
    placement_->close(id);
    viewed_layer_ = -1;
  }

  void save(SequenceId id, const std::string& path) override {
    write_file(path, [&](Writer& to) { write(to, id); });
  }
  Snapshot freeze(SequenceId id) override {
    return Snapshot(memory_, [&](Writer& to) { write(to, id); });
  }
  SequenceId load(const std::string& path) override {
    SequenceId id = -1;
    read_file(path, [&](Reader& from) { id = read(from, "'" + path + "'"); });
    return id;
  }
  SequenceId unfreeze(const Snapshot& snapshot) override {
    SequenceId id = -1;
    snapshot.read([&](Reader& from) { id = read(from, "the snapshot"); });
    return id;
  }

  void append(int layer, std::span<const StepInput> inputs) override {
    for (const StepInput& in : inputs) {
      if (next_slice(layer, in, in.n) < in.n)
        throw std::logic_error("these tokens attend slice by slice; use step()");
    }
    store(layer, inputs);
  }

  // append, once the slices are known.
  void store(int layer, std::span<const StepInput> inputs) {
    viewed_layer_ = -1;
    reserve(layer, inputs);
    for (const StepInput& in : inputs) {
      Sequence& s = sequence(in.sequence);
      if (gpu_) {
        s.tail.empty() ? store_slots_on_gpu(in, layer, s) : store_through_tail_on_gpu(in, layer, s);
      } else if (s.tail.empty()) {
        store_slots(in, layer, s);
      } else {
        store_through_tail(in, layer, s);
      }
      s.tokens[layer] += in.n;
    }
  }

  void view(int layer, std::span<const StepInput> inputs) override {
    viewed_.clear();
    for (const StepInput& in : inputs) {
      const Sequence& s = sequence(in.sequence);
      placement_->view(in.sequence, layer, stored_units(s, layer, s.tokens[layer]));
      for (int head = 0; head < shape_.kv_heads; ++head)
        viewed_.push_back(head_spans(in.sequence, layer, head));
    }
    if (codec_.read_copy && !gpu_) decode(viewed_, copy_, decoded_);
    if (turned_) gpu_ ? find_places(layer, inputs) : turn_keys(layer, inputs);
    viewed_layer_ = layer;
  }

  void attend(int layer, std::span<const StepInput> inputs) override {
    if (viewed_layer_ != layer) view(layer, inputs);
    find_queries(layer, inputs);
    problems_.clear();
    size_t at = 0;
    bool scored = false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const StepInput& in = inputs[i];
      const Sequence& s = sequence(in.sequence);
      const int64_t rows = int64_t{shape_.group()} * in.n * shape_.head_dim;
      for (int head = 0; head < shape_.kv_heads; ++head, ++at) {
        const int64_t slots = s.retention[index(layer, head)]->slots();
        problems_.push_back({.q = queries_[i] + head * rows,
                             .out = in.out + head * rows,
                             .spans = viewed_[at],
                             .group = shape_.group(),
                             .n = in.n,
                             .visible = slots - in.n + 1});
        scored |= s.slice[layer].scored;
      }
    }
    if (scored) give_mass(layer, inputs);
    for (const HeadQueries& p : problems_) (is_prefill(p) ? prefilled_ : decoded_steps_) = true;
    if (gpu_) {
      attend_on_gpu(layer, inputs);
    } else if (is_streamed(layer, inputs)) {
      attend_streamed(layer, inputs);
    } else {
      const size_t bytes = attention_workspace_bytes(problems_, shape_.head_dim);
      kv::attend(problems_, shape_.head_dim, fit(workspace_, bytes));
    }
    if (scored) observe(layer, inputs);
  }

  void step(int layer, std::span<const StepInput> inputs) override {
    const auto none = [](const StepInput& in) { return !in.out; };
    if (std::all_of(inputs.begin(), inputs.end(), none) && !retention_of(spec_).scores) {
      return store(layer, inputs);
    }
    bool whole = std::none_of(inputs.begin(), inputs.end(), none);
    for (const StepInput& in : inputs) whole = next_slice(layer, in, in.n) == in.n && whole;
    if (whole) {
      store(layer, inputs);
      return attend(layer, inputs);
    }
    reserve(layer, inputs);  // now, so that a step that runs out of memory changes nothing
    for (const StepInput& in : inputs) step_in_slices(layer, in);
  }

  int64_t tokens(SequenceId id, int layer) const override { return sequence(id).tokens[layer]; }

  std::vector<Span> spans(SequenceId id, int layer, int head) override {
    const Sequence& s = sequence(id);
    placement_->view(id, layer, stored_units(s, layer, s.tokens[layer]));
    std::vector<Span> all = gather_streamed(id, layer, head);
    const std::span<const Span> resident = head_spans(id, layer, head);
    all.insert(all.end(), resident.begin(), resident.end());
    return gpu_ ? gpu_->look(all) : all;
  }

  std::vector<int64_t> kept(SequenceId id, int layer, int head) const override {
    return sequence(id).retention[index(layer, head)]->tokens_by_slot();
  }

  std::string kernel() const override {
    if (gpu_ && turned_) return gpu_->kernel() + "/f32 of turned copy";
    if (gpu_ && codec_.read_copy) return gpu_->kernel() + "/f32 of decoded copy";
    if (gpu_) return gpu_->kernel() + "/" + encodings_name(codec_.k, codec_.v);
    if (!prefilled_) return cpu_kernel(1);
    return cpu_kernel(kPrefillTokens) + (decoded_steps_ ? " + " + cpu_kernel(1) : "");
  }

 private:
  // For steps of so many tokens.
  std::string cpu_kernel(int64_t tokens) const {
    const Encoding v = codec_.read_copy ? Encoding{} : codec_.v;
    if (turned_) return attention_kernel_name({}, v, tokens) + " of turned copy";
    if (codec_.read_copy) return attention_kernel_name({}, {}, tokens) + " of decoded copy";
    return attention_kernel_name(codec_.k, codec_.v, tokens);
  }

  size_t index(int layer, int head) const { return static_cast<size_t>(layer) * shape_.kv_heads + head; }

  Sequence& sequence(SequenceId id) { return const_cast<Sequence&>(std::as_const(*this).sequence(id)); }
  const Sequence& sequence(SequenceId id) const {
    if (id < 0 || static_cast<size_t>(id) >= sequences_.size() || !sequences_[id].open) {
      throw std::logic_error("no sequence " + std::to_string(id));
    }
    return sequences_[id];
  }

  SequenceId free_id() const {
    for (size_t id = 0; id < sequences_.size(); ++id) {
      if (!sequences_[id].open) return static_cast<SequenceId>(id);
    }
    if (sequences_.size() >= static_cast<size_t>(shape_.max_sequences)) {
      throw std::logic_error("more than max_sequences = " + std::to_string(shape_.max_sequences) +
                             " sequences");
    }
    return static_cast<SequenceId>(sequences_.size());
  }

  void open(SequenceId id) {
    if (static_cast<size_t>(id) == sequences_.size()) sequences_.emplace_back();
    try {
      placement_->open(id);
    } catch (...) {
      placement_->close(id);
      throw;
    }
  }

  // Asks every head for the next slice of `remaining` tokens; returns its length.
  int64_t next_slice(int layer, const StepInput& in, int64_t remaining) {
    Sequence& s = sequence(in.sequence);
    for (int head = 0; head < shape_.kv_heads; ++head)
      s.slice[layer] = s.retention[index(layer, head)]->next(remaining);
    return s.slice[layer].tokens;
  }

  void reserve(int layer, std::span<const StepInput> inputs) {
    growths_.clear();
    for (const StepInput& in : inputs) {
      const Sequence& s = sequence(in.sequence);
      const int64_t tokens = s.tokens[layer];
      if (tokens + in.n > shape_.max_tokens) {
        throw std::logic_error("append of " + std::to_string(in.n) + " tokens to a sequence of " +
                               std::to_string(tokens) +
                               " goes past max_tokens = " + std::to_string(shape_.max_tokens));
      }
      const int64_t used = stored_units(s, layer, tokens);
      const int64_t first = retention_of(spec_).keeps_all ? used : 0;
      growths_.push_back({in.sequence, first, used, stored_units(s, layer, tokens + in.n)});
    }
    placement_->reserve(layer, growths_);
  }

  // What must be alike for a sequence to fit: the spec, and all of the shape but the number of sequences.
  std::string identity() const {
    return spec_.print() + " with " + std::to_string(shape_.layers) + " layers, " +
           std::to_string(shape_.q_heads) + " query heads, " + std::to_string(shape_.kv_heads) +
           " kv heads, head_dim " + std::to_string(shape_.head_dim) + ", max_tokens " +
           std::to_string(shape_.max_tokens) + rope_identity();
  }

  // Cached keys have not met RoPE where the cache turns them, so going on with another RoPE would go
  // unnoticed.
  std::string rope_identity() const {
    if (!turned_) return "";
    const Rope& r = shape_.rope;
    std::ostringstream text;
    text << ", RoPE of theta " << r.theta
         << (r.pairs == RopePairs::kHalves ? " in halves" : " in neighbours");
    if (r.factor != 1.0)
      text << " slowed by " << r.factor << " (" << r.low << ", " << r.high << ", " << r.trained_tokens << ")";
    return text.str();
  }

  // Calls visit(data, bytes) for every plane of units [begin, end) of a layer.
  template <class Visit>
  void for_each_unit(SequenceId id, int layer, int64_t begin, int64_t end, Visit visit) {
    for (int head = 0; head < shape_.kv_heads; ++head) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const UnitAddress at = placement_->at(id, layer, head, unit);
        for (int p = 0; p < kPlanes; ++p) {
          if (unit_.bytes[p] > 0) visit(at.plane[p], static_cast<size_t>(unit_.bytes[p]));
        }
      }
    }
  }

  // The same for what is not in memory.
  void write_piece(Writer& to, const Piece& piece) const {
    for (int head = 0; head < shape_.kv_heads; ++head) {
      for (int64_t unit = 0; unit < piece.units; ++unit) {
        for (int p = 0; p < kPlanes; ++p) {
          const std::byte* data = piece.base[p] + head * piece.head_stride[p] + unit * unit_.bytes[p];
          if (unit_.bytes[p] > 0) to.write(data, static_cast<size_t>(unit_.bytes[p]));
        }
      }
    }
  }

  void write(Writer& to, SequenceId id) {
    const Sequence& s = sequence(id);
    to.put_text(identity());
    for (int layer = 0; layer < shape_.layers; ++layer) {
      to.put(s.tokens[layer]);
      for (int head = 0; head < shape_.kv_heads; ++head) s.retention[index(layer, head)]->save(to);
      RowWriter rows(to, memory_.gpu());
      if (!s.tail.empty()) s.tail[layer].save(rows);
      const int64_t streamed = placement_->streamed_units(id, layer);
      to.put(streamed);
      placement_->stream(layer, {&id, 1}, [&](size_t, const Piece& piece) { write_piece(to, piece); });
      for_each_unit(id, layer, streamed, stored_units(s, layer, s.tokens[layer]),
                    [&](const std::byte* data, size_t bytes) { rows.write(data, bytes); });
    }
  }

  SequenceId read(Reader& from, const std::string& what) {
    const std::string written = from.get_text();
    if (written != identity()) {
      throw std::invalid_argument("cannot load " + what + ": it holds a sequence of " + written +
                                  "; this cache is " + identity());
    }
    const SequenceId id = add_sequence();
    try {
      for (int layer = 0; layer < shape_.layers; ++layer) read_layer(from, id, layer);
    } catch (...) {
      release(id);
      throw;
    }
    return id;
  }

  void read_layer(Reader& from, SequenceId id, int layer) {
    Sequence& s = sequence(id);
    RowReader rows(from, memory_.gpu());
    s.tokens[layer] = from.get<int64_t>();
    for (int head = 0; head < shape_.kv_heads; ++head) s.retention[index(layer, head)]->load(from);
    if (!s.tail.empty()) {
      s.tail[layer].advance(s.tokens[layer]);
      s.tail[layer].load(rows);
    }
    // Piece by piece where they were written so, that no more is in memory at once than when it was saved.
    const int64_t units = stored_units(s, layer, s.tokens[layer]), streamed = from.get<int64_t>();
    for (int64_t done = 0, next; done < units; done = next) {
      next = done < streamed ? done + kSplitRows / unit_.rows : units;
      const Growth growth{.sequence = id, .first = done, .used = done, .units = next};
      placement_->reserve(layer, {&growth, 1});
      for_each_unit(id, layer, done, next, [&](std::byte* data, size_t bytes) { rows.read(data, bytes); });
    }
  }

  // Units of a layer that lie in the placement once the sequence has `tokens` tokens.
  int64_t stored_units(const Sequence& s, int layer, int64_t tokens) const {
    const int64_t slots = s.retention[index(layer, 0)]->slots_after(tokens);
    return s.tail.empty() ? slots : Tail::encoded_rows(codec_, slots) / unit_.rows;
  }

  void store_slots(const StepInput& in, int layer, Sequence& s) {
    const int64_t d = shape_.head_dim;
#pragma omp parallel if (in.n * shape_.kv_heads * d > kParallelElements)
    {
      UnitBatch batch(unit_, shape_.head_dim);
#pragma omp for schedule(static)
      for (int head = 0; head < shape_.kv_heads; ++head) {
        Retention& policy = *s.retention[index(layer, head)];
        for (int64_t i = 0; i < in.n; ++i) {
          const int64_t row = (head * in.n + i) * d;
          const int64_t slot = policy.admit({in.k + row, static_cast<size_t>(d)});
          batch.add(placement_->at(in.sequence, layer, head, slot), in.k + row, in.v + row);
        }
      }
      batch.flush();
    }
  }

  void store_through_tail(const StepInput& in, int layer, Sequence& s) {
    const int64_t before = s.tokens[layer];
#pragma omp parallel if (in.n * shape_.kv_heads * shape_.head_dim > kParallelElements)
    {
      UnitBatch raw(Tail::layout(shape_.head_dim), shape_.head_dim), units(unit_, shape_.head_dim);
      std::vector<float> k(static_cast<size_t>(unit_.rows * shape_.head_dim)), v(k.size());
#pragma omp for schedule(static)
      for (int head = 0; head < shape_.kv_heads; ++head) {
        for (int64_t i = 0; i < in.n; ++i) {
          const int64_t slot = put_in_tail(in, layer, s, head, i, raw);
          // The unit that has just become older than the residual.
          const int64_t encoded = Tail::encoded_rows(codec_, slot + 1);
          if (encoded == Tail::encoded_rows(codec_, slot)) continue;
          raw.flush();
          s.tail[layer].get(head, encoded - unit_.rows, unit_.rows, k.data(), v.data());
          units.add(placement_->at(in.sequence, layer, head, encoded / unit_.rows - 1), k.data(), v.data());
          units.flush();
        }
      }
      raw.flush();
    }
    s.tail[layer].advance(before + in.n);
  }

  // Token i of a step, for one head; returns its slot.
  int64_t put_in_tail(const StepInput& in, int layer, Sequence& s, int head, int64_t i, UnitBatch& raw) {
    const int64_t row = (head * in.n + i) * shape_.head_dim;
    Retention& policy = *s.retention[index(layer, head)];
    const int64_t slot = policy.admit({in.k + row, static_cast<size_t>(shape_.head_dim)});
    raw.add(s.tail[layer].address(head, slot), in.k + row, in.v + row);
    return slot;
  }

  // The same on a GPU, all units in one launch. Where the GPU chooses the slots, there is one token.
  void store_slots_on_gpu(const StepInput& in, int layer, Sequence& s) {
    const int64_t d = shape_.head_dim;
    encode_tasks_.clear();
    evicting_tasks_.clear();
    for (int head = 0; head < shape_.kv_heads; ++head) {
      // Of several tokens for one slot only the last may be stored; launches have no order inside.
      std::map<int64_t, int64_t> token_of_slot;
      for (int64_t i = 0; i < in.n; ++i) {
        const int64_t row = (head * in.n + i) * d;
        Retention& policy = *s.retention[index(layer, head)];
        const int64_t slot = policy.admit({in.k + row, static_cast<size_t>(d)});
        if (slot != Retention::kChosenOnGpu) {
          token_of_slot[slot] = i;
        } else {
          evicting_tasks_.push_back({*policy.gpu_state(), slot_runs(in.sequence, layer, head, policy.slots()),
                                     bytes_of(in.k + row), bytes_of(in.v + row)});
        }
      }
      for (const auto& [slot, i] : token_of_slot) {
        const int64_t row = (head * in.n + i) * d;
        encode_tasks_.push_back(
            {placement_->at(in.sequence, layer, head, slot), bytes_of(in.k + row), bytes_of(in.v + row)});
      }
    }
    gpu_->encode(unit_, encode_tasks_);
    gpu_->evict_and_encode(unit_, s.tokens[layer], evicting_tasks_);
  }

  SlotRuns slot_runs(SequenceId id, int layer, int head, int64_t slots) {
    SlotRuns runs{std::min(placement_->run_units(), slots), {}, {}};
    for (int64_t slot = 0; slot < slots; slot += runs.units)
      runs.first.push_back(placement_->at(id, layer, head, slot));
    if (runs.units == 1) return runs;
    const UnitAddress second = placement_->at(id, layer, head, 1);
    for (int p = 0; p < kPlanes; ++p) runs.distance[p] = second.plane[p] - runs.first.front().plane[p];
    return runs;
  }

  // Rows go to the tail up to the one that makes a unit older than the residual; that unit is encoded before
  // the next row takes its place. The heads go in step.
  void store_through_tail_on_gpu(const StepInput& in, int layer, Sequence& s) {
    const int64_t d = shape_.head_dim;
    Tail& tail = s.tail[layer];
    encode_tasks_.clear();
    for (int64_t i = 0; i < in.n; ++i) {
      int64_t slot = 0;
      for (int head = 0; head < shape_.kv_heads; ++head) {
        const int64_t row = (head * in.n + i) * d;
        slot = s.retention[index(layer, head)]->admit({in.k + row, static_cast<size_t>(d)});
        encode_tasks_.push_back({tail.address(head, slot), bytes_of(in.k + row), bytes_of(in.v + row)});
      }
      const int64_t encoded = Tail::encoded_rows(codec_, slot + 1);
      if (encoded == Tail::encoded_rows(codec_, slot)) continue;
      gpu_->encode(Tail::layout(shape_.head_dim), encode_tasks_);
      encode_tasks_.clear();
      for (int head = 0; head < shape_.kv_heads; ++head) {
        const UnitAddress raw = tail.address(head, encoded - unit_.rows);
        encode_tasks_.push_back({placement_->at(in.sequence, layer, head, encoded / unit_.rows - 1),
                                 raw.plane[kKData], raw.plane[kVData]});
      }
      gpu_->encode_from_tail(unit_, encode_tasks_);
      encode_tasks_.clear();
    }
    gpu_->encode(Tail::layout(shape_.head_dim), encode_tasks_);
    tail.advance(s.tokens[layer] + in.n);
  }

  static const std::byte* bytes_of(const float* rows) { return reinterpret_cast<const std::byte*>(rows); }

  void add_span_lists(Sequence& s) {
    for (int i = 0; i < shape_.layers * shape_.kv_heads; ++i) s.spans.emplace_back(memory_);
  }

  // The spans of all that is kept, until the sequence's next change.
  std::span<const Span> head_spans(SequenceId id, int layer, int head) {
    Sequence& s = sequence(id);
    const int64_t slots = s.retention[index(layer, head)]->slots();
    const int64_t rows = s.tail.empty() ? slots : Tail::encoded_rows(codec_, slots);
    HeadSpans& list = s.spans[index(layer, head)];
    if (list.moves != placement_->moves(id, layer) || list.settled_rows > rows) {
      list.settled = 0;
      list.settled_rows = 0;
      list.moves = placement_->moves(id, layer);
    }
    list.spans.erase(list.spans.begin() + static_cast<int64_t>(list.settled), list.spans.end());
    placement_->spans(id, layer, head, list.settled_rows, rows, list.spans);
    if (list.spans.size() > list.settled) {
      list.settled = list.spans.size() - 1;
      list.settled_rows = rows - list.spans.back().rows;
    }
    if (!s.tail.empty()) s.tail[layer].spans(head, list.spans);
    return list.spans;
  }

  void turn_keys(int layer, std::span<const StepInput> inputs) {
    std::vector<const Retention*> heads;
    for (const StepInput& in : inputs) {
      for (int head = 0; head < shape_.kv_heads; ++head)
        heads.push_back(sequence(in.sequence).retention[index(layer, head)].get());
    }
    turned_->turn_keys(viewed_, heads);
  }

  // Where the GPU turns them.
  void find_places(int layer, std::span<const StepInput> inputs) {
    turned_on_gpu_.places.clear();
    int64_t longest = 0;
    for (const StepInput& in : inputs) {
      for (int head = 0; head < shape_.kv_heads; ++head) {
        const Retention& policy = *sequence(in.sequence).retention[index(layer, head)];
        turned_on_gpu_.places.push_back(TurnedRows::places(policy));
        longest = std::max(longest, policy.slots());
      }
    }
    turned_on_gpu_.angles = turned_->angles_of(longest);
    turned_on_gpu_.halves = turned_->halves();
  }

  // Each input's q into queries_, turned where the cache does that. A step's tokens are the newest that are
  // kept.
  void find_queries(int layer, std::span<const StepInput> inputs) {
    queries_.clear();
    for (const StepInput& in : inputs) {
      if (in.n > sequence(in.sequence).slice[layer].tokens)
        throw std::logic_error("these tokens attend slice by slice; use step()");
      queries_.push_back(in.q);
    }
    if (!turned_) return;
    std::vector<TurnedRows::Queries> steps;
    for (const StepInput& in : inputs)
      steps.push_back({in.q, in.n, sequence(in.sequence).retention[index(layer, 0)]->slots() - in.n});
    queries_ = turned_->turn_queries(steps, shape_.q_heads);
  }

  int64_t streamed_rows(SequenceId id, int layer) const {
    return placement_->streamed_units(id, layer) * unit_.rows;
  }

  bool is_streamed(int layer, std::span<const StepInput> inputs) const {
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](const StepInput& in) { return streamed_rows(in.sequence, layer) > 0; });
  }

  void attend_on_gpu(int layer, std::span<const StepInput> inputs) {
    if (!is_streamed(layer, inputs))
      return gpu_->attend(problems_, nullptr, turned_ ? &turned_on_gpu_ : nullptr);
    std::vector<int> ids;
    FarRows far{unit_, {}, {}};
    for (const StepInput& in : inputs) {
      ids.push_back(in.sequence);
      far.rows.push_back(streamed_rows(in.sequence, layer));
    }
    far.visit = [&](const PieceVisitor& visit) { placement_->stream(layer, ids, visit); };
    gpu_->attend(problems_, &far, nullptr);
  }

  // First what comes in pieces, in the order in which it comes, then what is in memory.
  void attend_streamed(int layer, std::span<const StepInput> inputs) {
    const size_t bytes = PiecewiseAttention::workspace_bytes(problems_, shape_.head_dim);
    PiecewiseAttention attention(problems_, shape_.head_dim, fit(workspace_, bytes));
    std::vector<PiecewiseAttention::Piece> work;
    std::vector<std::span<const Span>> views;
    std::vector<int> ids;
    for (const StepInput& in : inputs) ids.push_back(in.sequence);
    placement_->stream(layer, ids, [&](size_t input, const Piece& piece) {
      const std::vector<Span> spans = piece_spans(piece);
      views.clear();
      for (const Span& span : spans) views.push_back({&span, 1});
      if (codec_.read_copy) decode(views, piece_copy_, piece_decoded_);
      const int64_t begin = piece.first_unit * unit_.rows;
      work.clear();
      for (size_t head = 0; head < views.size(); ++head)
        work.push_back({input * views.size() + head, views[head], begin, begin + piece.units * unit_.rows});
      attention.run(work);
    });
    work.clear();
    for (size_t i = 0; i < problems_.size(); ++i) {
      const int64_t begin = streamed_rows(ids[i / static_cast<size_t>(shape_.kv_heads)], layer);
      work.push_back({i, viewed_[i], begin, problems_[i].visible + problems_[i].n - 1});
    }
    attention.run(work);
    attention.finish();
  }

  // One span a head.
  std::vector<Span> piece_spans(const Piece& piece) const {
    std::vector<Span> spans;
    for (int head = 0; head < shape_.kv_heads; ++head) {
      std::array<const std::byte*, kPlanes> base{};
      for (int p = 0; p < kPlanes; ++p)
        base[p] = piece.base[p] ? piece.base[p] + head * piece.head_stride[p] : nullptr;
      spans.push_back(make_span(unit_, base, unit_.bytes, piece.units * unit_.rows));
    }
    return spans;
  }

  // Copies of the pieces of one head, in the workspace.
  std::vector<Span> gather_streamed(SequenceId id, int layer, int head) {
    std::vector<Span> spans;
    const int64_t unit_bytes = std::accumulate(unit_.bytes.begin(), unit_.bytes.end(), int64_t{0});
    std::byte* to = fit(gathered_, static_cast<size_t>(placement_->streamed_units(id, layer) * unit_bytes));
    placement_->stream(layer, {&id, 1}, [&](size_t, const Piece& piece) {
      std::array<const std::byte*, kPlanes> base{};
      for (int p = 0; p < kPlanes; ++p) {
        if (!piece.base[p]) continue;
        base[p] = to;
        to = std::copy_n(piece.base[p] + head * piece.head_stride[p], piece.units * unit_.bytes[p], to);
      }
      spans.push_back(make_span(unit_, base, unit_.bytes, piece.units * unit_.rows));
    });
    return spans;
  }

  // read=copy: every row decoded to f32 in the workspace; the views then show the copy, through `decoded`.
  void decode(std::vector<std::span<const Span>>& views, Block& copy, std::vector<Span>& decoded) {
    const int64_t d = shape_.head_dim;
    const int64_t row_bytes = d * static_cast<int64_t>(sizeof(float));
    std::vector<Span> encoded;
    for (const auto& spans : views) encoded.insert(encoded.end(), spans.begin(), spans.end());
    int64_t rows = 0;
    for (const Span& span : encoded) rows += span.rows;
    std::byte* to = fit(copy, static_cast<size_t>(2 * rows * row_bytes));
    decoded.clear();
    std::vector<float*> target;
    for (const Span& span : encoded) {
      decoded.push_back({.k = {.data = to, .stride = row_bytes},
                         .v = {.data = to + span.rows * row_bytes, .stride = row_bytes},
                         .rows = span.rows});
      target.push_back(reinterpret_cast<float*>(to));
      to += 2 * span.rows * row_bytes;
    }
#pragma omp parallel for schedule(dynamic, 1)
    for (size_t i = 0; i < encoded.size(); ++i) decode_span(encoded[i], target[i]);
    size_t first = 0;
    for (auto& spans : views) {
      spans = std::span(decoded).subspan(first, spans.size());
      first += spans.size();
    }
  }

  void decode_span(const Span& span, float* to) const {
    decode_rows(span.k, shape_.head_dim, 0, span.rows, to);
    decode_rows(span.v, shape_.head_dim, 0, span.rows, to + span.rows * shape_.head_dim);
  }

  // Points the problems of scored slices at zeroed room for their mass, or at the scores that a GPU keeps.
  void give_mass(int layer, std::span<const StepInput> inputs) {
    const auto is_scored = [&](size_t at) {
      return sequence(inputs[at / static_cast<size_t>(shape_.kv_heads)].sequence).slice[layer].scored;
    };
    int64_t rows = 0;
    for (size_t at = 0; at < problems_.size(); ++at) {
      if (!is_scored(at)) continue;
      if (const auto state = policy_of(layer, inputs, at).gpu_state()) {
        problems_[at].mass = state->score;
      } else {
        rows += rows_of(problems_[at]);
      }
    }
    if (rows == 0) return;
    float* mass = zeros(rows);
    for (size_t at = 0; at < problems_.size(); ++at) {
      if (!is_scored(at) || problems_[at].mass) continue;
      problems_[at].mass = mass;
      mass += rows_of(problems_[at]);
    }
  }

  Retention& policy_of(int layer, std::span<const StepInput> inputs, size_t problem) {
    const auto heads = static_cast<size_t>(shape_.kv_heads);
    return *sequence(inputs[problem / heads].sequence)
                .retention[index(layer, static_cast<int>(problem % heads))];
  }
  static int64_t rows_of(const HeadQueries& p) { return p.visible + p.n - 1; }

  // Room for numbers that attention adds to, in its memory.
  float* zeros(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    float* host = reinterpret_cast<float*>(fit(mass_, bytes));
    std::fill_n(host, count, 0.0f);
    if (!gpu_) return host;
    if (gpu_mass_.size() < bytes) gpu_mass_ = Block::of_rows(memory_, bytes, ByteKind::kWorkspace);
    memory_.gpu()->copy(gpu_mass_.data(), host, bytes);
    return reinterpret_cast<float*>(gpu_mass_.data());
  }

  // What attention added up, where the host can read it.
  std::span<const float> added(const float* mass, int64_t rows) {
    const auto count = static_cast<size_t>(rows);
    if (!gpu_) return {mass, count};
    float* host = reinterpret_cast<float*>(fit(mass_, count * sizeof(float)));
    memory_.gpu()->copy(host, mass, count * sizeof(float));
    return {host, count};
  }

  void observe(int layer, std::span<const StepInput> inputs) {
    size_t at = 0;
    for (const StepInput& in : inputs) {
      Sequence& s = sequence(in.sequence);
      for (int head = 0; head < shape_.kv_heads; ++head, ++at) {
        Retention& policy = *s.retention[index(layer, head)];
        if (!problems_[at].mass || policy.gpu_state()) continue;
        policy.observe(added(problems_[at].mass, policy.slots()));
      }
      if (std::exchange(s.slice[layer].scored, false))
        compact(layer, in.sequence, s);  // attending again must not count twice
    }
  }

  // Moves the rows that the retention keeps to the front and gives back what lies behind them.
  void compact(int layer, SequenceId id, Sequence& s) {
    const int64_t before = s.retention[index(layer, 0)]->slots();
    for (int head = 0; head < shape_.kv_heads; ++head) {
      const std::vector<int64_t> keep = s.retention[index(layer, head)]->compact();
      for (int64_t to = 0; to < static_cast<int64_t>(keep.size()); ++to) {
        if (keep[to] != to)
          move_row(placement_->at(id, layer, head, keep[to]), placement_->at(id, layer, head, to));
      }
    }
    const int64_t after = s.retention[index(layer, 0)]->slots();
    if (after == before) return;
    viewed_layer_ = -1;
    placement_->trim(id, layer, before, after);
  }

  void move_row(const UnitAddress& from, const UnitAddress& to) {
    for (int p = 0; p < kPlanes; ++p) {
      if (unit_.bytes[p] > 0) memory_.copy(to.plane[p], from.plane[p], static_cast<size_t>(unit_.bytes[p]));
    }
  }

  // The step of one input whose first slice is known.
  void step_in_slices(int layer, const StepInput& in) {
    const int64_t d = shape_.head_dim;
    std::vector<float> q, k, v, out;
    const auto gather = [&](const float* from, int heads, int64_t first, int64_t n, std::vector<float>& to) {
      to.resize(static_cast<size_t>(heads * n * d));
      for (int h = 0; h < heads; ++h)
        std::copy_n(from + (h * in.n + first) * d, n * d, to.begin() + h * n * d);
    };
    for (int64_t first = 0; first < in.n;) {
      const int64_t n = sequence(in.sequence).slice[layer].tokens;
      gather(in.q, shape_.q_heads, first, n, q);
      gather(in.k, shape_.kv_heads, first, n, k);
      gather(in.v, shape_.kv_heads, first, n, v);
      out.resize(q.size());
      const StepInput part{in.sequence, n, q.data(), k.data(), v.data(), out.data()};
      store(layer, {&part, 1});
      attend(layer, {&part, 1});
      for (int h = 0; in.out && h < shape_.q_heads; ++h) {
        std::copy_n(out.begin() + h * n * d, n * d, in.out + (h * in.n + first) * d);
      }
      first += n;
      if (first < in.n) next_slice(layer, in, in.n - first);
    }
  }

  std::byte* fit(Block& block, size_t bytes) { return kv::fit(memory_, block, bytes); }

  const Spec spec_;
  const CacheShape shape_;
  Memory& memory_;
  const Codec codec_;
  const UnitLayout unit_;
  std::unique_ptr<Placement> placement_;
  std::vector<Sequence> sequences_;

  // Of the step in progress; kept between steps so that a steady state allocates nothing.
  int viewed_layer_ = -1;
  std::vector<Growth> growths_;
  std::vector<std::span<const Span>> viewed_;  // [inputs * kv_heads]
  std::vector<Span> decoded_,
      piece_decoded_;                  // read=copy: what the views of viewed_ and of a piece point into
  std::vector<const float*> queries_;  // [inputs]
  std::vector<HeadQueries> problems_;
  Block workspace_, copy_, piece_copy_, mass_, gpu_mass_, gathered_;
  bool prefilled_ = false, decoded_steps_ = false;  // which paths of attention have run
  std::optional<TurnedRows> turned_;                // positions=cache

  std::optional<GpuEngine> gpu_;  // where the memory has one
  TurnedKeys turned_on_gpu_{};
  std::vector<EncodeTask> encode_tasks_;
  std::vector<EvictingTask> evicting_tasks_;
};

}  // namespace

std::unique_ptr<Cache> build_cache(const Spec& spec, const CacheShape& shape, Memory& memory) {
  check_shape(shape);
  const std::string reason =
      memory.gpu() ? gpu_unsupported_reason(spec, shape.head_dim) : unsupported_reason(spec, shape.head_dim);
  if (!reason.empty()) throw std::invalid_argument("'" + spec.print() + "': " + reason);
  return std::make_unique<CacheImpl>(spec, shape, memory);
}

}  // namespace kv
