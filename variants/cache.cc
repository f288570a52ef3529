// Joins the three stages of a spec into one cache.
//
// A row's way in: retention picks its slot, the codec encodes its unit, placement says where the unit's bytes
// go. Codecs that encode several rows together, or keep the newest rows raw, go through a Tail first.
#include "variants/cache.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

#include "kernels/attention.h"
#include "kernels/encoding.h"
#include "variants/build.h"
#include "variants/list.h"
#include "variants/tail.h"

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

UnitLayout unit_layout(const Codec& codec, int head_dim) {
  UnitLayout unit{.rows = codec.unit_rows(), .bytes = {}, .k = codec.k, .v = codec.v, .stride = {}};
  unit.stride = {unit_data_bytes(codec.k, head_dim), unit_meta_bytes(codec.k, head_dim),
                 unit_data_bytes(codec.v, head_dim), unit_meta_bytes(codec.v, head_dim)};
  for (int p = 0; p < kPlanes; ++p) {
    const Encoding& side = p == kKData || p == kKMeta ? codec.k : codec.v;
    unit.bytes[p] = unit.stride[p] * (unit.rows / side.group);
  }
  return unit;
}

PlacementContext placement_context(const CacheShape& shape, const UnitLayout& unit, int64_t max_slots,
                                   Memory& memory) {
  return {&memory, shape.layers, shape.kv_heads, (max_slots + unit.rows - 1) / unit.rows, shape.max_sequences,
          unit};
}

// For questions about a retention that must not cost counted bytes.
struct NoMemory : Memory {
  std::byte* allocate(size_t, ByteKind) override { throw std::logic_error("a question allocates nothing"); }
  void release(std::byte*) noexcept override {}
  void copy(std::byte*, const std::byte*, size_t) override {}
};

// The spans of one head, kept from step to step: only the end of the list is made anew, so that a step over
// many small blocks does not rebuild thousands of them.
struct HeadSpans {
  explicit HeadSpans(Memory& memory) : spans(WorkspaceAllocator<Span>(memory)) {}
  SpanList spans;
  size_t settled = 0;  // spans that the next append will not touch, and their rows
  int64_t settled_rows = 0;
  int64_t moves = 0;  // of the placement, when they were made
};

struct Sequence {
  bool open = false;
  std::vector<int64_t> tokens;                        // [layers]
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
    const int64_t slots =
        retention_of(spec).make(spec.retention, shape.max_tokens, memory)->slots_after(shape.max_tokens);
    placement_ = placement_of(spec).make(spec.placement, placement_context(shape, unit_, slots, memory_));
  }

  const CacheShape& shape() const override { return shape_; }
  const Spec& spec() const override { return spec_; }

  SequenceId add_sequence() override {
    const SequenceId id = free_id();
    Sequence fresh;
    fresh.tokens.assign(static_cast<size_t>(shape_.layers), 0);
    for (int i = 0; i < shape_.layers * shape_.kv_heads; ++i) {
      fresh.retention.push_back(retention_of(spec_).make(spec_.retention, shape_.max_tokens, memory_));
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

  void append(int layer, std::span<const StepInput> inputs) override {
    viewed_layer_ = -1;
    growths_.clear();
    for (const StepInput& in : inputs) {
      const Sequence& s = sequence(in.sequence);
      const int64_t tokens = s.tokens[layer];
      if (tokens + in.n > shape_.max_tokens) {
        throw std::logic_error("append of " + std::to_string(in.n) + " tokens to a sequence of " +
                               std::to_string(tokens) +
                               " goes past max_tokens = " + std::to_string(shape_.max_tokens));
      }
      if (in.n > 1 && s.retention[0]->wants_mass()) {
        throw std::logic_error("this retention scores every token as it comes; use step()");
      }
      const int64_t used = stored_units(s, layer, tokens);
      const int64_t first = s.retention[index(layer, 0)]->keeps_all() ? used : 0;
      growths_.push_back({in.sequence, first, used, stored_units(s, layer, tokens + in.n)});
    }
    placement_->reserve(layer, growths_);
    for (const StepInput& in : inputs) {
      Sequence& s = sequence(in.sequence);
      if (s.tail.empty()) {
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
    if (codec_.read_copy) decode_all();
    viewed_layer_ = layer;
  }

  void attend(int layer, std::span<const StepInput> inputs) override {
    if (viewed_layer_ != layer) view(layer, inputs);
    problems_.clear();
    const bool scored = sequence(inputs[0].sequence).retention[0]->wants_mass();
    size_t at = 0;
    int64_t rows_in_all = 0;
    for (const StepInput& in : inputs) {
      const Sequence& s = sequence(in.sequence);
      const int64_t queries = int64_t{shape_.group()} * in.n * shape_.head_dim;
      for (int head = 0; head < shape_.kv_heads; ++head, ++at) {
        const Retention& kept = *s.retention[index(layer, head)];
        if (in.n > 1 && !kept.keeps_all())
          throw std::logic_error("a chunk can attend at once only where all is kept; use step()");
        problems_.push_back({.q = in.q + head * queries,
                             .out = in.out + head * queries,
                             .spans = viewed_[at],
                             .group = shape_.group(),
                             .n = in.n,
                             .visible = kept.slots() - in.n + 1});
        rows_in_all += kept.slots();
      }
    }
    if (scored) {
      mass_.assign(static_cast<size_t>(rows_in_all), 0.0f);
      float* mass = mass_.data();
      for (HeadQueries& p : problems_) mass = (p.mass = mass) + p.visible;
    }
    kv::attend(problems_, shape_.head_dim, workspace(attention_workspace_bytes(problems_, shape_.head_dim)));
    if (scored) observe(layer, inputs);
  }

  void step(int layer, std::span<const StepInput> inputs) override {
    const Retention& policy = *sequence(inputs[0].sequence).retention[0];
    const bool wanted = std::any_of(inputs.begin(), inputs.end(), [](const StepInput& in) { return in.out; });
    if (policy.keeps_all() || (!wanted && !policy.wants_mass())) {
      append(layer, inputs);
      if (wanted) attend(layer, inputs);
      return;
    }
    for (const StepInput& in : inputs) step_token_by_token(layer, in);
  }

  int64_t tokens(SequenceId id, int layer) const override { return sequence(id).tokens[layer]; }

  std::vector<Span> spans(SequenceId id, int layer, int head) override {
    const Sequence& s = sequence(id);
    placement_->view(id, layer, stored_units(s, layer, s.tokens[layer]));
    const std::span<const Span> all = head_spans(id, layer, head);
    return {all.begin(), all.end()};
  }

  std::vector<int64_t> kept(SequenceId id, int layer, int head) const override {
    const Retention& state = *sequence(id).retention[index(layer, head)];
    std::vector<int64_t> tokens(static_cast<size_t>(state.slots()));
    for (size_t slot = 0; slot < tokens.size(); ++slot)
      tokens[slot] = state.token_at(static_cast<int64_t>(slot));
    return tokens;
  }

  std::string kernel() const override {
    if (!codec_.read_copy) return attention_kernel_name(codec_.k, codec_.v);
    return attention_kernel_name({}, {}) + " of decoded copy";
  }

 private:
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

  // Units of a layer that lie in the placement once the sequence has `tokens` tokens.
  int64_t stored_units(const Sequence& s, int layer, int64_t tokens) const {
    const int64_t slots = s.retention[index(layer, 0)]->slots_after(tokens);
    return s.tail.empty() ? slots : Tail::encoded_rows(codec_, slots) / unit_.rows;
  }

  void encode(const UnitAddress& to, const float* k, const float* v) const {
    const int64_t d = shape_.head_dim;
    for (int64_t row = 0, u = 0; row < unit_.rows; row += codec_.k.group, ++u) {
      encode_unit(codec_.k, shape_.head_dim, k + row * d, to.plane[kKData] + u * unit_.stride[kKData],
                  to.plane[kKMeta] ? to.plane[kKMeta] + u * unit_.stride[kKMeta] : nullptr);
    }
    for (int64_t row = 0, u = 0; row < unit_.rows; row += codec_.v.group, ++u) {
      encode_unit(codec_.v, shape_.head_dim, v + row * d, to.plane[kVData] + u * unit_.stride[kVData],
                  to.plane[kVMeta] ? to.plane[kVMeta] + u * unit_.stride[kVMeta] : nullptr);
    }
  }

  void store_slots(const StepInput& in, int layer, Sequence& s) {
    const int64_t d = shape_.head_dim;
#pragma omp parallel for schedule(static) if (in.n * shape_.kv_heads * d > kParallelElements)
    for (int head = 0; head < shape_.kv_heads; ++head) {
      Retention& policy = *s.retention[index(layer, head)];
      for (int64_t i = 0; i < in.n; ++i) {
        const int64_t row = (head * in.n + i) * d;
        encode(placement_->at(in.sequence, layer, head, policy.admit()), in.k + row, in.v + row);
      }
    }
  }

  void store_through_tail(const StepInput& in, int layer, Sequence& s) {
    const int64_t d = shape_.head_dim;
    Tail& tail = s.tail[layer];
    const int64_t before = s.tokens[layer];
#pragma omp parallel for schedule(static) if (in.n * shape_.kv_heads * d > kParallelElements)
    for (int head = 0; head < shape_.kv_heads; ++head) {
      Retention& policy = *s.retention[index(layer, head)];
      std::vector<float> k(static_cast<size_t>(unit_.rows * d)), v(k.size());
      for (int64_t i = 0; i < in.n; ++i) {
        const int64_t slot = policy.admit();
        tail.put(head, slot, in.k + (head * in.n + i) * d, in.v + (head * in.n + i) * d);
        // The unit that has just become older than the residual.
        const int64_t encoded = Tail::encoded_rows(codec_, slot + 1);
        if (encoded == Tail::encoded_rows(codec_, slot)) continue;
        tail.get(head, encoded - unit_.rows, unit_.rows, k.data(), v.data());
        encode(placement_->at(in.sequence, layer, head, encoded / unit_.rows - 1), k.data(), v.data());
      }
    }
    tail.advance(before + in.n);
  }

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

  // read=copy: every row decoded to f32 in the workspace; viewed_ then shows the copy.
  void decode_all() {
    const int64_t d = shape_.head_dim;
    const int64_t row_bytes = d * static_cast<int64_t>(sizeof(float));
    std::vector<Span> encoded;
    for (const auto& spans : viewed_) encoded.insert(encoded.end(), spans.begin(), spans.end());
    int64_t rows = 0;
    for (const Span& span : encoded) rows += span.rows;
    const size_t bytes = static_cast<size_t>(2 * rows * row_bytes);
    if (copy_.size() < bytes) {
      copy_ = Block();
      copy_ = Block(memory_, round_up(bytes), ByteKind::kWorkspace);
    }
    decoded_.clear();
    std::vector<float*> target;
    std::byte* to = copy_.data();
    for (const Span& span : encoded) {
      decoded_.push_back({.k = {.data = to, .stride = row_bytes},
                          .v = {.data = to + span.rows * row_bytes, .stride = row_bytes},
                          .rows = span.rows});
      target.push_back(reinterpret_cast<float*>(to));
      to += 2 * span.rows * row_bytes;
    }
#pragma omp parallel for schedule(dynamic, 1)
    for (size_t i = 0; i < encoded.size(); ++i) decode_span(encoded[i], target[i]);
    size_t first = 0;
    for (auto& spans : viewed_) {
      spans = std::span(decoded_).subspan(first, spans.size());
      first += spans.size();
    }
  }

  void decode_span(const Span& span, float* to) const {
    for (const Side* side : {&span.k, &span.v}) {
      for (int64_t row = 0; row < span.rows; ++row, to += shape_.head_dim) {
        const int64_t unit = row / side->encoding.group;
        decode_row(side->encoding, shape_.head_dim, side->data + unit * side->stride,
                   side->meta ? side->meta + unit * side->meta_stride : nullptr,
                   static_cast<int>(row % side->encoding.group), to);
      }
    }
  }

  void observe(int layer, std::span<const StepInput> inputs) {
    const float* mass = mass_.data();
    for (const StepInput& in : inputs) {
      for (int head = 0; head < shape_.kv_heads; ++head) {
        Retention& policy = *sequence(in.sequence).retention[index(layer, head)];
        policy.observe({mass, static_cast<size_t>(policy.slots())});
        mass += policy.slots();
      }
    }
  }

  void step_token_by_token(int layer, const StepInput& in) {
    const int64_t d = shape_.head_dim;
    std::vector<float> q(static_cast<size_t>(shape_.q_heads * d)),
        k(static_cast<size_t>(shape_.kv_heads * d)), v(k.size()), out(q.size());
    const auto gather = [&](const float* from, int heads, int64_t i, std::vector<float>& to) {
      for (int h = 0; h < heads; ++h) std::copy_n(from + (h * in.n + i) * d, d, to.begin() + h * d);
    };
    for (int64_t i = 0; i < in.n; ++i) {
      gather(in.q, shape_.q_heads, i, q);
      gather(in.k, shape_.kv_heads, i, k);
      gather(in.v, shape_.kv_heads, i, v);
      const StepInput one{in.sequence, 1, q.data(), k.data(), v.data(), out.data()};
      append(layer, {&one, 1});
      attend(layer, {&one, 1});
      if (!in.out) continue;
      for (int h = 0; h < shape_.q_heads; ++h)
        std::copy_n(out.begin() + h * d, d, in.out + (h * in.n + i) * d);
    }
  }

  // Grows in steps of an eighth, so that a growing sequence does not ask for a new block at every token.
  static size_t round_up(size_t bytes) {
    const size_t grain = std::max<size_t>(64, std::bit_ceil(bytes) / 8);
    return (bytes + grain - 1) / grain * grain;
  }

  std::byte* workspace(size_t bytes) {
    if (workspace_.size() < bytes) {
      workspace_ = Block();
      workspace_ = Block(memory_, round_up(bytes), ByteKind::kWorkspace);
    }
    return workspace_.data();
  }

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
  std::vector<Span> decoded_;                  // read=copy: what viewed_ points into
  std::vector<HeadQueries> problems_;
  std::vector<float> mass_;
  Block workspace_, copy_;
};

}  // namespace

std::unique_ptr<Cache> build_cache(const Spec& spec, const CacheShape& shape, Memory& memory) {
  check_shape(shape);
  const std::string reason = unsupported_reason(spec);
  if (!reason.empty()) throw std::invalid_argument("'" + spec.print() + "': " + reason);
  return std::make_unique<CacheImpl>(spec, shape, memory);
}

int64_t predicted_bytes(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths) {
  const Codec codec = codec_of(spec).make(spec.codec);
  NoMemory none;
  const auto policy = retention_of(spec).make(spec.retention, shape.max_tokens, none);
  const PlacementContext context = placement_context(shape, unit_layout(codec, shape.head_dim),
                                                     policy->slots_after(shape.max_tokens), none);
  const PlacementEntry& placement = placement_of(spec);
  int64_t bytes = placement.shared_bytes ? placement.shared_bytes(spec.placement, context) : 0;
  for (const int64_t tokens : lengths) {
    const int64_t slots = policy->slots_after(tokens);
    const bool tail = Tail::needed(codec);
    const int64_t units = tail ? Tail::encoded_rows(codec, slots) / context.unit.rows : slots;
    bytes += shape.layers * placement.layer_bytes(spec.placement, context, units);
    if (tail) bytes += shape.layers * Tail::bytes(codec, shape.kv_heads, shape.head_dim);
  }
  return bytes;
}

std::string unsupported_reason(const Spec& spec) {
  const Codec codec = codec_of(spec).make(spec.codec);
  NoMemory none;
  const auto policy = retention_of(spec).make(spec.retention, 1, none);
  if (Tail::needed(codec) && !policy->keeps_all()) {
    return "retention '" + spec.retention.name + "' overwrites single tokens, but codec '" + spec.codec.name +
           "' encodes groups of " + std::to_string(codec.unit_rows()) + " rows together";
  }
  const PlacementEntry& placement = placement_of(spec);
  return placement.refuses ? placement.refuses(spec.placement, codec, *policy) : "";
}

}  // namespace kv
