// What policies share that keep a fixed number of rows: slots fill in order; from then on each token takes
// the slot of the one that the policy picks as victim, before its query attends. So a query always sees its
// own token, and no more than `budget` rows are ever held. (Papers that evict after the query speak of a
// cache one row smaller.)
//
// The ledger counts, a slot: an i32 token id, and an f32 score where the policy has one. The score is what
// the policy says it is. Scores that come from attention lie where attention is computed: with rows in a
// GPU's memory the state is there too, and the GPU chooses the victim. The host then knows how many tokens
// there are, and asks which only for those who want to see them.
#pragma once

#include <cstdint>
#include <span>

#include "variants/retention/retention.h"

namespace kv {

class Evicting : public Retention {
 public:
  enum class Scores { kNone, kOfKeys, kOfAttention };

  int64_t admit(std::span<const float> key) final;
  int64_t slots() const final { return slots_after(count_); }
  int64_t token_at(int64_t slot) const final {
    return gpu_ ? tokens_by_slot()[static_cast<size_t>(slot)] : tokens()[static_cast<size_t>(slot)];
  }
  std::vector<int64_t> tokens_by_slot() const final;
  int64_t slots_after(int64_t tokens) const final { return tokens < budget_ ? tokens : budget_; }
  Slice next(int64_t remaining) override;
  void save(Writer& to) const final;
  void load(Reader& from) final;

  // Bytes that a state of `budget` slots, of which at most max_tokens are ever used, takes.
  static int64_t metadata_bytes(int64_t budget, int64_t max_tokens, Scores scores);

 protected:
  Evicting(int64_t budget, const RetentionContext& context, Scores scores);
  Evicting(const Evicting& other);

  // The slot to overwrite; asked when every slot is in use and the state is the host's.
  virtual int64_t victim() const = 0;
  // The score that a token starts with.
  virtual float first_score(std::span<const float> /*key*/) const { return 0.0f; }

  int64_t budget() const { return budget_; }
  // Tokens admitted, which is the number of the next one.
  int64_t count() const { return count_; }
  // The state on the GPU, if it is there.
  std::optional<GpuState> state_on_gpu(int64_t recent, bool newest_query) const;
  // The state on the host, if it is there.
  std::span<const int32_t> tokens() const;  // [slots()]
  std::span<const float> scores() const;    // [slots()]
  std::span<float> scores();

 private:
  Block new_block(size_t bytes) const;
  int32_t* token_data() const { return reinterpret_cast<int32_t*>(block_.data()); }
  float* score_data() const { return reinterpret_cast<float*>(block_.data()) + budget_; }
  // The first slots' numbers from and to where they lie.
  template <class T>
  std::vector<T> read(const T* from) const;
  template <class T>
  void write(T* to, std::span<const T> numbers) const;

  Memory* memory_;
  cuda::Gpu* gpu_;  // null where the state is the host's
  int64_t budget_;
  int64_t count_ = 0;
  bool scored_;
  Block block_;  // i32 [budget] token ids, then f32 [budget] scores
};

}  // namespace kv
