// What an eviction policy in FP64 decides. Each is one file in this folder and one line in list.h, written from
// its paper and its documented rules and from nothing else: they share no code with variants/, so that a wrong
// eviction there shows as a wrong answer. replay.h runs them.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/verify/reference/attention.h"

namespace kv::reference {

// A policy's numbers by their names in spec strings: counts of rows, no shares; a choice is its place in the list; a
// number with places times 100. Of heads that are named, 1 or 0 behind the name and each head's number. `kv_head`: the
// one that the rule is for.
using Parameters = std::map<std::string, int64_t, std::less<>>;
// Throws std::logic_error where `name` is missing.
int64_t parameter(const Parameters& parameters, std::string_view name);

inline constexpr double kInfinite = std::numeric_limits<double>::infinity();
inline constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// A row in the cache, and what a policy may know about it.
struct Slot {
  int64_t token = 0;
  double squared_norm = 0.0;        // of its key, as it came
  double accumulated_weight = 0.0;  // attention weights of all queries so far
  double last_weight = 0.0;         // of the newest token's queries
};

// A token that needs a slot.
struct Arrival {
  int64_t token = 0;
  int64_t layer_head = 0;  // layer * kv_heads + kv head
};

// What a cut may know of a prompt that has attended, of one KV head.
struct Prompt {
  int64_t tokens = 0;
  int head_dim = 0, group = 1;
  std::vector<std::span<const float>> q{};  // [group, tokens] of [head_dim], as they came
  std::vector<std::span<const float>> k{};  // [tokens] of [head_dim], as they came
  std::vector<std::span<const float>> v{};  // [tokens] of [head_dim]
  const Rotation* rotation = nullptr;       // by which q and k were rotated before they came, if they were
};

// Cutting a prompt: the `rows` slots of the largest score stay, of equals the lowest; an infinite one stays
// in any case.
struct Cut {
  std::vector<double> score;  // [slots]
  int64_t rows = 0;
};

// The state of a run is in the slots alone.
class Rule {
 public:
  virtual ~Rule() = default;
  // Slots at most.
  virtual int64_t capacity() const { return kUnlimited; }
  // What it costs to drop each slot when all are in use: the cheapest goes, of equals the lowest; an infinite
  // cost protects.
  virtual std::vector<double> costs(const std::vector<Slot>& slots, const Arrival& arrival) const;
  // Whether weights are accumulated anew from this token of a prompt on.
  virtual bool restarts_weights(int64_t token, int64_t prompt) const;
  // What happens to a prompt when all of it has attended.
  virtual std::optional<Cut> cut(const std::vector<Slot>& slots, const Prompt& prompt) const;
  // What the heads of a layer then settle among themselves; asked of the first head's rule.
  virtual void settle(std::vector<Cut>& cuts) const;
};

// What a policy's file declares.
struct Oracle {
  std::string_view name;  // of the retention in spec strings
  std::unique_ptr<Rule> (*make)(const Parameters& parameters);
};

// Null where there is none: a retention is then measured all the same, and its evictions are not compared.
const Oracle* find_oracle(std::string_view retention);

}  // namespace kv::reference
