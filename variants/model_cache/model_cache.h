// The cache of a model whose layers differ: one inner cache for each group of layers that keep alike.
//
// A call about a layer goes to its group's cache, under the layer's number there. A layer that shares goes to the
// cache of the layer it names, and stores nothing. Sequences have one number in all groups.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "variants/model_cache/layer_groups.h"

namespace kv {

class ModelCache : public Cache {
 public:
  // groups_of(): of this shape. Throws std::invalid_argument as build_cache() does.
  ModelCache(const std::vector<LayerGroup>& groups, const ModelShape& shape, Memory& memory);

  const CacheShape& shape() const override { return shape_; }
  bool keeps_rows(int layer) const override { return of(layer).keeps_rows(at(layer).layer); }
  const Spec& spec(int layer) const override { return of(layer).spec(at(layer).layer); }

  SequenceId add_sequence() override;
  SequenceId fork(SequenceId from) override;
  void release(SequenceId id) override;
  // That of the first group that has one.
  std::string refuses_truncation(SequenceId id, int64_t tokens) const override;
  std::function<void()> prepare_truncation(SequenceId id, int64_t tokens) override;
  // All groups share blocks, of as many tokens, or none does.
  std::string refuses_sharing() const override;
  int64_t block_tokens() const override { return caches_.front()->block_tokens(); }
  SharedBlock hold(SequenceId id, int64_t block) override;
  SequenceId adopt(std::span<const SharedBlock> prefix) override;
  int64_t blocks_in_use() const override;
  int64_t compact() override;
  void write(Writer& to, SequenceId id) const override;
  SequenceId read(Reader& from, const std::string& what) override;

  // A layer that shares reads its inputs' queries alone. Its step follows that of the layer it names, with the same tokens.
  // Throws std::logic_error if those were taken slice by slice, because a retention overwrote rows between them; tokens
  // then have to come one by one.
  void append(int layer, std::span<const StepInput> inputs) override;
  void view(int layer, std::span<const StepInput> inputs) override {
    of(layer).view(at(layer).layer, inputs);
  }
  void attend(int layer, std::span<const StepInput> inputs) override {
    of(layer).attend(at(layer).layer, inputs);
  }
  void step(int layer, std::span<const StepInput> inputs) override;

  int64_t tokens(SequenceId id, int layer) const override { return of(layer).tokens(id, at(layer).layer); }
  std::vector<Span> spans(SequenceId id, int layer, int head) override {
    return of(layer).spans(id, at(layer).layer, head);
  }
  std::span<const Span> resident_spans(SequenceId id, int layer, int head) override {
    return of(layer).resident_spans(id, at(layer).layer, head);
  }
  std::vector<int64_t> kept(SequenceId id, int layer, int head) const override {
    return of(layer).kept(id, at(layer).layer, head);
  }
  std::span<const float> removed_mean(SequenceId id, int layer, int head) const override {
    return of(layer).removed_mean(id, at(layer).layer, head);
  }
  std::vector<int64_t> read_slots(SequenceId id, int layer, int head) const override {
    return of(layer).read_slots(id, at(layer).layer, head);
  }
  std::string kernel() const override;

 private:
  struct Place {
    size_t group = 0;
    int layer = 0;  // in the group's cache
    bool shares = false;
  };

  Memory& memory() const override { return memory_; }
  const Place& at(int layer) const { return places_.at(static_cast<size_t>(layer)); }
  Cache& of(int layer) const { return *caches_[at(layer).group]; }
  std::string identity() const;
  // Makes one sequence in every cache by `make(cache)`, or in none.
  template <class Make>
  SequenceId in_all(Make make);

  const ModelShape shape_;
  Memory& memory_;
  std::vector<std::unique_ptr<Cache>> caches_;  // [groups]
  std::vector<Place> places_;                   // [layers]
};

}  // namespace kv
