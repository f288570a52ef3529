// Decisions of an eviction policy in FP64. Each policy is one file in this folder and one line in list.h, written
// from its paper and its documented rules alone. Policies share no code with variants/, so that a wrong eviction
// there shows as a wrong answer. policy_replay.h runs them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/verify/reference/attention.h"

namespace kv::reference {

// A policy's numbers by their names in spec strings: counts of rows, no shares. A choice is its index in the list; a
// number with decimals is multiplied by 100. Named heads: 1 or 0 behind the name and each head's number. `kv_head`:
// the head that the rule is for.
using Parameters = std::map<std::string, int64_t, std::less<>>;
// Throws std::logic_error where `name` is missing.
int64_t parameter(const Parameters& parameters, std::string_view name);

inline constexpr double kInfinite = std::numeric_limits<double>::infinity();
inline constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// A row in the cache, with the facts that a policy may use.
struct Slot {
  int64_t token = 0;
  double squared_norm = 0.0;        // its key's, before any encoding
  double accumulated_weight = 0.0;  // attention weights from all queries so far
  double last_weight = 0.0;         // from the newest token's queries
};

// A token that needs a slot.
struct Arrival {
  int64_t token = 0;
  int64_t layer_head = 0;  // layer * kv_heads + kv head
};

// The facts about a prompt that a cut may use, for one KV head, once the prompt has attended.
struct Prompt {
  int64_t tokens = 0;
  int head_dim = 0, group = 1;
  std::vector<std::span<const float>> q{};  // [group, tokens] of [head_dim], before any encoding
  std::vector<std::span<const float>> k{};  // [tokens] of [head_dim], before any encoding
  std::vector<std::span<const float>> v{};  // [tokens] of [head_dim]
  const Rotation* rotation = nullptr;       // the rotation that q and k already have, if any
};

// Cuts a prompt: the `rows` slots with the largest scores stay, the lowest of equals first. An infinite score always
// stays.
struct Cut {
  std::vector<double> score;  // [slots]
  int64_t rows = 0;
};

// Rows that a codec stores in groups, all rows of a group at once: those behind the first, once as many newer ones as
// `waiting` have come. A policy of such rows drops whole groups.
struct Groups {
  int64_t rows = 1, first = 0, waiting = 0;
  bool are_single() const { return rows == 1 && waiting == 0; }
  // The end of the last group of the first `tokens`.
  int64_t stored_end(int64_t tokens) const {
    return first + std::max<int64_t>(0, tokens - waiting - first) / rows * rows;
  }
};

// A policy's rule. The slots alone hold the state of a run.
class Rule {
 public:
  virtual ~Rule() = default;
  // Largest number of slots.
  virtual int64_t capacity() const { return kUnlimited; }
  // Cost of dropping each slot when all are in use. The cheapest slot is evicted, the lowest of equals; an infinite
  // cost protects.
  virtual std::vector<double> costs(const std::vector<Slot>& slots, const Arrival& arrival) const;
  // The tokens [first, second) that are gone once so many have come, where rows are stored in groups. Throws
  // std::logic_error for a policy of single rows.
  virtual std::pair<int64_t, int64_t> gone(int64_t tokens, const Groups& groups) const;
  // True if weights accumulate anew from this token of a prompt on.
  virtual bool restarts_weights(int64_t token, int64_t prompt) const;
  // Cuts a prompt once all of it has attended.
  virtual std::optional<Cut> cut(const std::vector<Slot>& slots, const Prompt& prompt) const;
  // Balances the cuts of a layer's heads; called on the first head's rule.
  virtual void settle(std::vector<Cut>& cuts) const;
};

template <class T>
std::unique_ptr<Rule> make_rule(const Parameters& parameters) {
  return std::make_unique<T>(parameters);
}

// A rule of so many slots, in which each slot has a cost of its own.
using SlotCost = std::function<double(const Slot& slot, const Arrival& arrival)>;
std::unique_ptr<Rule> rule_of(int64_t capacity, SlotCost cost);

// A rule that cuts a prompt of more than `rows` tokens to so many, by the scores of its slots.
using CutScores = std::function<std::vector<double>(const std::vector<Slot>& slots, const Prompt& prompt)>;
std::unique_ptr<Rule> cut_of(int64_t rows, CutScores scores);

// The declaration in a policy's file.
struct Oracle {
  std::string_view name;  // the retention's name in spec strings
  std::unique_ptr<Rule> (*make)(const Parameters& parameters);
};

// Null: no FP64 policy. The retention is then measured without comparing its evictions.
const Oracle* find_oracle(std::string_view retention);

}  // namespace kv::reference
