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

// For questions about a retention that must not cost counted bytes.
struct NoMemory : Memory {
  std::byte* allocate(size_t, ByteKind) override { throw std::logic_error("a question allocates nothing"); }
  void release(std::byte*) noexcept override {}
  void copy(std::byte*, const std::byte*, size_t) override {}
};

struct Sequence {
  bool open = false;
  std::vector<int64_t> tokens;                        // [layers]
  std::vector<std::unique_ptr<Retention>> retention;  // [layers * kv_heads]
  std::vector<Tail> tail;                             // [layers], where the codec needs one
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
    placement_ = placement_of(spec).make(
        spec.placement, {&memory_, shape.layers, shape.kv_heads, (slots + unit_.rows - 1) / unit_.rows,
                         shape.max_sequences, unit_});
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
      placement_->reserve(in.sequence, layer, stored_units(s, layer, tokens),
                          stored_units(s, layer, tokens + in.n));
    }
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
    spans_.clear();
    first_span_.clear();
    for (const StepInput& in : inputs) {
      const Sequence& s = sequence(in.sequence);
      placement_->view(in.sequence, layer, stored_units(s, layer, s.tokens[layer]));
      for (int head = 0; head < shape_.kv_heads; ++head) {
        first_span_.push_back(spans_.size());
        head_spans(in.sequence, layer, head, spans_);
      }
    }
    first_span_.push_back(spans_.size());
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
        problems_.push_back(
            {.q = in.q + head * queries,
             .out = in.out + head * queries,
             .spans = std::span(spans_).subspan(first_span_[at], first_span_[at + 1] - first_span_[at]),
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
    std::vector<Span> out;
    head_spans(id, layer, head, out);
    return out;
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

  void head_spans(SequenceId id, int layer, int head, std::vector<Span>& out) {
    const Sequence& s = sequence(id);
    const int64_t slots = s.retention[index(layer, head)]->slots();
    if (s.tail.empty()) return placement_->spans(id, layer, head, slots, out);
    placement_->spans(id, layer, head, Tail::encoded_rows(codec_, slots), out);
    s.tail[layer].spans(head, out);
  }

  // read=copy: every row decoded to f32 in the workspace, one span a head.
  void decode_all() {
    const int64_t d = shape_.head_dim;
    int64_t rows = 0;
    for (const Span& span : spans_) rows += span.rows;
    const size_t bytes = static_cast<size_t>(2 * rows * d) * sizeof(float);
    if (copy_.size() < bytes) {
      copy_ = Block();
      copy_ = Block(memory_, round_up(bytes), ByteKind::kWorkspace);
    }
    float* to = reinterpret_cast<float*>(copy_.data());
    std::vector<std::pair<Span, float*>> work;
    for (const Span& span : spans_) {
      work.push_back({span, to});
      to += 2 * span.rows * d;
    }
#pragma omp parallel for schedule(dynamic, 1)
    for (size_t i = 0; i < work.size(); ++i) decode_span(work[i].first, work[i].second);
    for (size_t i = 0; i < work.size(); ++i) {
      const auto* k = reinterpret_cast<const std::byte*>(work[i].second);
      const int64_t row_bytes = d * static_cast<int64_t>(sizeof(float));
      spans_[i] = {.k = {.data = k, .stride = row_bytes},
                   .v = {.data = k + spans_[i].rows * row_bytes, .stride = row_bytes},
                   .rows = spans_[i].rows};
    }
  }

  void decode_span(const Span& span, float* to) const {
    decode_rows(span.k, shape_.head_dim, 0, span.rows, to);
    decode_rows(span.v, shape_.head_dim, 0, span.rows, to + span.rows * shape_.head_dim);
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
  std::vector<Span> spans_;
  std::vector<size_t> first_span_;  // [inputs * kv_heads + 1] into spans_
  std::vector<HeadQueries> problems_;
  std::vector<float> mass_;
  Block workspace_, copy_;
};

}  // namespace

std::unique_ptr<Cache> build_cache(const Spec& spec, const CacheShape& shape, Memory& memory) {
  check_shape(shape);
  const std::string reason = unsupported_reason(spec, shape.head_dim);
  if (!reason.empty()) throw std::invalid_argument("'" + spec.print() + "': " + reason);
  return std::make_unique<CacheImpl>(spec, shape, memory);
}

int64_t predicted_bytes(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths) {
  const Codec codec = codec_of(spec).make(spec.codec);
  const UnitLayout unit = unit_layout(codec, shape.head_dim);
  const int64_t unit_bytes = unit.bytes[0] + unit.bytes[1] + unit.bytes[2] + unit.bytes[3];
  NoMemory none;
  const auto policy = retention_of(spec).make(spec.retention, shape.max_tokens, none);
  const auto units = [&](int64_t tokens) {
    const int64_t slots = policy->slots_after(tokens);
    return Tail::needed(codec) ? Tail::encoded_rows(codec, slots) / unit.rows : slots;
  };
  const int64_t max_units = (policy->slots_after(shape.max_tokens) + unit.rows - 1) / unit.rows;
  int64_t bytes = 0;
  for (const int64_t tokens : lengths) {
    bytes += placement_of(spec).reserved_units(spec.placement, units(tokens), max_units) * unit_bytes *
             shape.kv_heads;
    if (Tail::needed(codec)) bytes += Tail::bytes(codec, shape.kv_heads, shape.head_dim);
  }
  return bytes * shape.layers;
}

static std::string clash_of_stages(const Spec& spec) {
  const Codec codec = codec_of(spec).make(spec.codec);
  NoMemory none;
  if (Tail::needed(codec) && !retention_of(spec).make(spec.retention, 1, none)->keeps_all()) {
    return "retention '" + spec.retention.name + "' overwrites single tokens, but codec '" + spec.codec.name +
           "' encodes groups of " + std::to_string(codec.unit_rows()) + " rows together";
  }
  return "";
}

std::string unsupported_reason(const Spec& spec, int head_dim) {
  std::string reason = clash_of_stages(spec);
  const Codec codec = codec_of(spec).make(spec.codec);
  if (reason.empty()) reason = unsupported_reason(codec.k, head_dim);
  if (reason.empty()) reason = unsupported_reason(codec.v, head_dim);
  return reason;
}

// The largest head_dim is a multiple of every block, so it has only the reasons that all have.
std::string unsupported_reason(const Spec& spec) { return unsupported_reason(spec, kMaxHeadDim); }

}  // namespace kv
