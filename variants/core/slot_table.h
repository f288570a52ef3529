// What an evicting policy keeps for each slot: an i32 token id and, where it has one, an f32 score.
//
// Scores that come from attention lie where attention is computed. With rows in a GPU's memory the table is
// there too: attention adds to the scores itself, and the GPU chooses the slot that is overwritten. All other
// tables are the host's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "variants/core/memory.h"

namespace kv {

enum class SlotScores { kNone, kOfKeys, kOfAttention };

// How the slot of a policy that scores by attention is chosen: the lowest score, but for the newest `recent`
// tokens.
struct EvictionRule {
  int64_t recent = 0;
  bool newest_query = false;  // a score is what the newest query alone gave, and not the sum of all
};

struct DeviceScores;  // variants/storage/device_scores.h: known to the storage that keeps them

class SlotTable {
 public:
  virtual ~SlotTable() = default;
  SlotTable& operator=(const SlotTable&) = delete;
  virtual std::unique_ptr<SlotTable> clone() const = 0;
  // Not null where a device keeps the table and chooses by it.
  virtual const DeviceScores* device() const { return nullptr; }

  // The table itself, where the host keeps it.
  int32_t* tokens() const { return reinterpret_cast<int32_t*>(block_.data()); }       // [slots]
  float* scores() const { return reinterpret_cast<float*>(block_.data()) + slots_; }  // [slots]

  // Copies of the first `count` slots, and back.
  std::vector<int32_t> read_tokens(int64_t count) const { return read(tokens(), count); }
  std::vector<float> read_scores(int64_t count) const { return read(scores(), count); }
  void write_tokens(std::span<const int32_t> from) { write(tokens(), from); }
  void write_scores(std::span<const float> from) { write(scores(), from); }

  // Of a table of so many slots.
  static int64_t bytes(int64_t slots, SlotScores scores);

 protected:
  SlotTable(Memory& memory, int64_t slots, Block block)
      : memory_(memory), slots_(slots), block_(std::move(block)) {}
  // The same entries in another block.
  SlotTable(const SlotTable& other, Block block);

  virtual void copy(void* to, const void* from, size_t bytes) const = 0;
  Memory& memory() const { return memory_; }
  size_t size() const { return block_.size(); }

 private:
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
  Block block_;  // i32 [slots] token ids, then f32 [slots] scores; counted as metadata
};

// A table where scores of this kind are computed: made by the storage (variants/storage/storage.cc). `rule`
// matters to scores of attention.
std::unique_ptr<SlotTable> make_slot_table(Memory& memory, int64_t slots, SlotScores scores,
                                           const EvictionRule& rule);

}  // namespace kv
