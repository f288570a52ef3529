// Runs an FP64 policy over one layer of a sequence: the tokens it keeps, and the outputs its queries get.
//
// f32 sums can order two nearly equal scores otherwise than FP64, and after one different choice two runs diverge. A
// cache can therefore also be *followed*: the oracle adopts each of its choices and reports how far the worst misses
// the best, by FP64 scores of that very history.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/verify/reference/attention.h"
#include "harness/verify/reference/policy.h"

namespace kv::reference {

// A policy as a spec string names it.
struct Policy {
  std::string name;
  Parameters parameters = {};
  bool cache_positions = false;  // q and k come before RoPE; their cache positions rotate them
  Groups groups = {};
};

// One layer of a whole sequence.
struct PolicyInput {
  std::span<const float> q;     // [q_heads, n, head_dim]
  std::span<const float> k, v;  // [kv_heads, n, head_dim], as stored: decoded if a codec changed them
  std::span<const float>
      raw_k;  // [kv_heads, n, head_dim] before encoding, for policies that read keys; empty: k
  std::span<const float> raw_v = {};                      // the same for values; empty: v
  std::span<const float> waiting_k = {}, waiting_v = {};  // before their group is stored; empty: k and v
  int q_heads = 1, kv_heads = 1;
  int64_t n = 0;
  int head_dim = 0;
  int layer = 0;           // random draws differ between layers
  int64_t prompt = 0;      // tokens of the first step; only policies that cut it use this
  Rotation rotation = {};  // only if the policy has cache_positions
};

// [kv_heads][n]: tokens in each slot after step t.
using KeptTokens = std::vector<std::vector<std::vector<int64_t>>>;

struct PolicyRun {
  std::vector<double> out;  // [q_heads, n, head_dim]
  KeptTokens kept;
  // Counts of the followed choices:
  int64_t choices = 0;
  int64_t disputed = 0;  // FP64 would have chosen otherwise
  // Largest relative distance by which a dropped slot's score missed that of the slot the policy would drop. Infinite
  // if the choice broke the policy's rules.
  double worst_miss = 0.0;
};

// Steps token by token: token t is stored, in the policy's slot if all are in use, then attends to all slots.
// `follow`: a cache's own kept tokens; an empty entry was not read back and is left to the policy. Throws
// std::logic_error for impossible sizes or names.
PolicyRun run_policy(const Policy& policy, const PolicyInput& input, const KeptTokens* follow = nullptr);

}  // namespace kv::reference
