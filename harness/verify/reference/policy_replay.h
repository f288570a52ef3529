// Runs an FP64 policy over one layer of a sequence: what it should keep, and what its queries should then get.
//
// f32 sums can order two nearly equal scores otherwise than FP64 does, and after one other choice two runs
// have nothing more to do with each other. So a cache can also be *followed*: the oracle then takes over each
// of its choices, and says by how much the worst of them misses the best, by FP64 scores of that very
// history.
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
  bool cache_positions = false;  // q and k come before RoPE, and are rotated by their positions in the cache
};

// One layer of a whole sequence.
struct PolicyInput {
  std::span<const float> q;     // [q_heads, n, head_dim]
  std::span<const float> k, v;  // [kv_heads, n, head_dim], as stored: decoded, where a codec changed them
  std::span<const float>
      raw_k;  // [kv_heads, n, head_dim] as they came, for policies that read keys; empty: k
  std::span<const float> raw_v = {};  // likewise; empty: v
  int q_heads = 1, kv_heads = 1;
  int64_t n = 0;
  int head_dim = 0;
  int layer = 0;           // random draws differ between layers
  int64_t prompt = 0;      // tokens of the first step; only matters to policies that cut it
  Rotation rotation = {};  // where the policy has cache_positions
};

// [kv_heads][n]: the tokens in each slot after step t.
using KeptTokens = std::vector<std::vector<std::vector<int64_t>>>;

struct PolicyRun {
  std::vector<double> out;  // [q_heads, n, head_dim]
  KeptTokens kept;
  // Of the choices that were followed:
  int64_t choices = 0;
  int64_t disputed = 0;  // FP64 would have chosen otherwise
  // The most by which the score of what was dropped missed that of what should have been, as a share of the
  // latter. Infinite where the choice broke the policy's rules.
  double worst_miss = 0.0;
};

// Steps token by token: token t is stored, in the slot of the policy's choice if all are in use, then attends
// to all slots. `follow`: a cache's own kept tokens; an empty entry was not read back, and is left to the
// policy. Throws std::logic_error for sizes or a name that cannot be.
PolicyRun run_policy(const Policy& policy, const PolicyInput& input, const KeptTokens* follow = nullptr);

}  // namespace kv::reference
