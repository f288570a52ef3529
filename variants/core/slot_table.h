// Metadata of an evicting policy's slots: an i32 token id and, where the policy has one, an f32 score.
//
// Scores that come from attention lie where attention is computed. In a GPU's memory attention adds to the scores itself,
// and the slot to overwrite is chosen there. All other tables are the host's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "variants/core/memory.h"

namespace kv {

enum class SlotScores { kNone, kOfKeys, kOfAttention };

// The victim of a policy that scores by attention: the lowest score outside the newest `recent` tokens.
struct EvictionRule {
  int64_t recent = 0;
  bool newest_query = false;  // a score is the weight from the newest query alone, not the sum over all
};

// A table that a device keeps, as its kernels are given it (kernels/cuda/attention/evict.h).
struct DeviceScores {
  int32_t* token;  // [budget] of the device
  float* score;    // [budget] of the device
  int32_t budget, recent;
  bool newest_query;  // see EvictionRule
};

class SlotTable {
 public:
  // Not initialised where the host keeps it. `rule` is for scores of attention.
  SlotTable(Memory& memory, int64_t slots, SlotScores scores, const EvictionRule& rule);
  SlotTable(const SlotTable& other);
  SlotTable& operator=(const SlotTable&) = delete;

  // True where attention adds to the scores where they lie, and the slot to overwrite is chosen there.
  bool chooses() const { return chooses_; }
  DeviceScores device() const {
    return {tokens(), scores(), static_cast<int32_t>(slots_), static_cast<int32_t>(rule_.recent),
            rule_.newest_query};
  }

  // The table itself; the host reads it where the table does not choose.
  int32_t* tokens() const { return reinterpret_cast<int32_t*>(block_.data()); }       // [slots]
  float* scores() const { return reinterpret_cast<float*>(block_.data()) + slots_; }  // [slots]

  // Copies of the first `count` slots, and back.
  std::vector<int32_t> read_tokens(int64_t count) const { return read(tokens(), count); }
  std::vector<float> read_scores(int64_t count) const { return read(scores(), count); }
  void write_tokens(std::span<const int32_t> from) { write(tokens(), from); }
  void write_scores(std::span<const float> from) { write(scores(), from); }

  // Bytes of a table of so many slots.
  static int64_t bytes(int64_t slots, SlotScores scores);

 private:
  Block new_block(size_t bytes) const;
  void copy(void* to, const void* from, size_t bytes) const;
  template <class T>
  std::vector<T> read(const T* from, int64_t count) const {
    std::vector<T> numbers(static_cast<size_t>(count));
    if (count > 0) copy(numbers.data(), from, numbers.size() * sizeof(T));
    return numbers;
  }
  template <class T>
  void write(T* to, std::span<const T> numbers) {
    if (!numbers.empty()) copy(to, numbers.data(), numbers.size_bytes());
  }

  Memory& memory_;
  const int64_t slots_;
  const EvictionRule rule_;
  const bool chooses_;
  Block block_;  // i32 [slots] token ids, then f32 [slots] scores; counted as metadata
};

}  // namespace kv
