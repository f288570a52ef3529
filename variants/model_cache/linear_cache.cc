#include "variants/model_cache/linear_cache.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "kernels/delta_rule.h"

namespace kv {
namespace {

constexpr size_t kMostShapeText = 1 << 12;  // bytes

struct LinearSequence {
  bool open = false;
  std::vector<int64_t> tokens;  // [layers]
  Block states;                 // [layers, value_heads, key_dim, value_dim] f32
};

class LinearCache : public Cache {
 public:
  LinearCache(const LinearShape& linear, const CacheShape& shape, Memory& memory)
      : linear_(linear), shape_(shape), memory_(memory) {}

  const CacheShape& shape() const override { return shape_; }
  bool keeps_rows(int) const override { return false; }
  const Spec& spec(int) const override { throw std::logic_error("a linear layer has no spec"); }

  SequenceId add_sequence() override {
    const SequenceId id = free_id();
    LinearSequence fresh = make();
    std::fill_n(fresh.states.data(), fresh.states.size(), std::byte{0});
    put(id, std::move(fresh));
    return id;
  }
  SequenceId fork(SequenceId from) override {
    const LinearSequence& parent = at(from);
    const SequenceId id = free_id();
    LinearSequence child = make();
    child.tokens = parent.tokens;
    memory_.copy(child.states.data(), parent.states.data(), child.states.size());
    put(id, std::move(child));
    return id;
  }
  void release(SequenceId id) override { at(id) = LinearSequence(); }
  std::string refuses_truncation(SequenceId id, int64_t tokens) const override {
    const std::vector<int64_t>& have = at(id).tokens;
    if (*std::max_element(have.begin(), have.end()) <= tokens) return "";
    return "the state of a linear layer has taken its tokens in, and cannot give them back";
  }
  std::function<void()> prepare_truncation(SequenceId, int64_t) override {
    return [] {};  // there is nothing to forget where it is not refused
  }

  void write(Writer& to, SequenceId id) const override {
    const LinearSequence& s = at(id);
    to.put_text(identity());
    to.put(std::span<const int64_t>(s.tokens));
    to.write(s.states.data(), s.states.size());
  }
  SequenceId read(Reader& from, const std::string& what) override;

  void append(int layer, std::span<const StepInput> inputs) override {
    for (const StepInput& in : inputs) {
      if (in.n > 1) throw std::logic_error("a linear layer's tokens attend one by one; use step()");
    }
    update(layer, inputs, false);
  }
  void view(int, std::span<const StepInput>) override {}
  void attend(int layer, std::span<const StepInput> inputs) override;
  void step(int layer, std::span<const StepInput> inputs) override { update(layer, inputs, true); }

  int64_t tokens(SequenceId id, int layer) const override {
    return at(id).tokens.at(static_cast<size_t>(layer));
  }
  std::vector<Span> spans(SequenceId, int, int) override { return {}; }
  std::span<const Span> resident_spans(SequenceId, int, int) override { return {}; }
  std::vector<int64_t> kept(SequenceId, int, int) const override { return {}; }
  std::vector<int64_t> read_slots(SequenceId, int, int) const override { return {}; }
  std::string kernel() const override { return "delta_rule"; }

 private:
  Memory& memory() const override { return memory_; }
  int64_t state_floats() const { return int64_t{linear_.key_dim} * linear_.value_dim; }
  float* state(const LinearSequence& s, int layer, int head) const {
    return reinterpret_cast<float*>(s.states.data()) +
           (int64_t{layer} * linear_.value_heads + head) * state_floats();
  }

  LinearSequence make() const {
    const int64_t bytes = linear_state_bytes(linear_) * shape_.layers;
    return {true, std::vector<int64_t>(static_cast<size_t>(shape_.layers)),
            Block(memory_, static_cast<size_t>(bytes), ByteKind::kPayload)};
  }
  const LinearSequence& at(SequenceId id) const {
    if (id < 0 || id >= std::ssize(sequences_) || !sequences_[static_cast<size_t>(id)].open)
      throw std::logic_error("no sequence " + std::to_string(id));
    return sequences_[static_cast<size_t>(id)];
  }
  LinearSequence& at(SequenceId id) { return const_cast<LinearSequence&>(std::as_const(*this).at(id)); }
  SequenceId free_id() const {
    for (size_t id = 0; id < sequences_.size(); ++id) {
      if (!sequences_[id].open) return static_cast<SequenceId>(id);
    }
    if (std::ssize(sequences_) >= shape_.max_sequences)
      throw std::logic_error("more than max_sequences = " + std::to_string(shape_.max_sequences) +
                             " sequences");
    return static_cast<SequenceId>(sequences_.size());
  }
  void put(SequenceId id, LinearSequence sequence) {
    if (id == std::ssize(sequences_)) sequences_.emplace_back();
    sequences_[static_cast<size_t>(id)] = std::move(sequence);
  }
  std::string identity() const {
    return "a linear state of " + std::to_string(shape_.layers) + " layers, " +
           std::to_string(linear_.key_heads) + " key heads of " + std::to_string(linear_.key_dim) + ", " +
           std::to_string(linear_.value_heads) + " value heads of " + std::to_string(linear_.value_dim);
  }
  void update(int layer, std::span<const StepInput> inputs, bool with_outputs);

  const LinearShape linear_;
  const CacheShape shape_;
  Memory& memory_;
  std::vector<LinearSequence> sequences_;
};

// Token t of all heads of an input, as the kernel takes it.
DeltaToken token_of(const StepInput& in, const LinearShape& s, int head, int64_t t) {
  const int64_t key = (head / (s.value_heads / s.key_heads) * in.n + t) * s.key_dim, gate = head * in.n + t;
  return {.q = in.q ? in.q + key : nullptr,
          .k = in.k + key,
          .v = in.v + gate * s.value_dim,
          .alpha = in.alpha[gate],
          .beta = in.beta[gate],
          .out = in.out ? in.out + gate * s.value_dim : nullptr};
}

void LinearCache::update(int layer, std::span<const StepInput> inputs, bool with_outputs) {
  for (const StepInput& in : inputs) {
    if (!in.alpha || !in.beta) throw std::logic_error("a linear layer needs alpha and beta");
    if (tokens(in.sequence, layer) + in.n > shape_.max_tokens)
      throw std::logic_error("a linear layer goes past max_tokens = " + std::to_string(shape_.max_tokens));
  }
#pragma omp parallel
  {
    std::vector<float> scratch(static_cast<size_t>(linear_.value_dim));
#pragma omp for collapse(2) schedule(static)
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (int head = 0; head < linear_.value_heads; ++head) {
        float* s = state(at(inputs[i].sequence), layer, head);
        for (int64_t t = 0; t < inputs[i].n; ++t) {
          DeltaToken token = token_of(inputs[i], linear_, head, t);
          if (!with_outputs) token.out = nullptr;
          delta_rule_step(token, linear_.key_dim, linear_.value_dim, s, scratch.data());
        }
      }
    }
  }
  for (const StepInput& in : inputs) at(in.sequence).tokens[static_cast<size_t>(layer)] += in.n;
}

void LinearCache::attend(int layer, std::span<const StepInput> inputs) {
  for (const StepInput& in : inputs) {
    if (in.n > 1 || tokens(in.sequence, layer) < 1)
      throw std::logic_error("a linear layer's tokens attend one by one; use step()");
  }
#pragma omp parallel for collapse(2) schedule(static)
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (int head = 0; head < linear_.value_heads; ++head) {
      const DeltaToken token = token_of(inputs[i], linear_, head, 0);
      delta_rule_read(token.q, linear_.key_dim, linear_.value_dim, state(at(inputs[i].sequence), layer, head),
                      token.out);
    }
  }
}

SequenceId LinearCache::read(Reader& from, const std::string& what) {
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument("cannot load " + what + ": " + why);
  };
  std::string written;
  try {
    written = from.get_text(kMostShapeText);
  } catch (const std::invalid_argument& e) {
    refuse(e.what());
  }
  if (written != identity()) refuse("it holds a sequence of " + written + "; this cache is " + identity());
  const SequenceId id = free_id();
  LinearSequence fresh = make();
  from.get(std::span<int64_t>(fresh.tokens));
  for (const int64_t tokens : fresh.tokens) {
    if (tokens < 0) refuse("its number of tokens cannot be");
    if (tokens > shape_.max_tokens)
      refuse("it holds a sequence of " + std::to_string(tokens) + " tokens; this cache takes up to " +
             std::to_string(shape_.max_tokens));
  }
  from.read(fresh.states.data(), fresh.states.size());
  put(id, std::move(fresh));
  return id;
}

}  // namespace

int64_t linear_state_bytes(const LinearShape& s) {
  return int64_t{s.value_heads} * s.key_dim * s.value_dim * static_cast<int64_t>(sizeof(float));
}

std::unique_ptr<Cache> build_linear_cache(const LinearShape& s, const CacheShape& of, Memory& memory) {
  if (s.key_heads < 1 || s.value_heads < s.key_heads || s.value_heads % s.key_heads != 0 || s.key_dim < 1 ||
      s.value_dim < 1) {
    throw std::invalid_argument("a linear layer of " + std::to_string(s.key_heads) + " key heads of " +
                                std::to_string(s.key_dim) + " and " + std::to_string(s.value_heads) +
                                " value heads of " + std::to_string(s.value_dim) +
                                ": the value heads must be a multiple of the key heads, and all at least 1");
  }
  return std::make_unique<LinearCache>(s, of, memory);
}

}  // namespace kv
