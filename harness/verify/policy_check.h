// Compares what a cache evicts with the FP64 policies of harness/verify/reference.
//
// A wrong eviction leaves a plausible output: the kernel is right about the rows that are there. So a cache
// of the spec's own is fed the workload token by token and followed in FP64: each of its choices must be the
// policy's, but for near ties that f32 sums order otherwise, and each of its outputs that policy's. A
// retention without an FP64 policy is not compared, and its cells say so.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/verify/reference/policy_replay.h"
#include "harness/workload/workload.h"
#include "kernels/span.h"
#include "variants/cache/spec.h"

namespace kv::cuda {
class Gpu;
}

namespace kv::verify {

// How far two scores may be apart, as a share, for a kernel with this error bound to order them otherwise
// than FP64.
inline double near_tie(double kernel_bound) { return kernel_bound > 1e-5 ? 2e-4 : 2e-5; }
// What the check may cost: multiply-adds in FP64, well under a second. Longer sequences are cut to what that
// allows; where nothing would be evicted within it, nothing is checked.
inline constexpr double kPolicyCheckWork = 5e8;

struct PolicyCheck {
  // fp64: compared with the FP64 policy; no_policy: there is none; empty: nothing to compare, as nothing is
  // evicted, or comparing would cost too much.
  std::string_view oracle;
  int64_t tokens = 0;       // that were compared
  int64_t choices = 0;      // rows that had to go
  int64_t disputed = 0;     // of these, near ties that were decided otherwise
  double worst_miss = 0.0;  // of the disputed ones
  double kernel_bound = 0.0;
  double out_rel_l2 = 0.0;  // of all outputs, against FP64 attention over what the policy left
  // Empty if all is within its bound, else what is not.
  std::string failure() const;
};

// Layer 0 of the workload's sequence 0, at most its first two kv heads. `max_tokens`: of the cache that it
// stands for, since budgets may be shares of it. `prompt`: tokens of the first step. `gpu`: where
// the cache lives; null for the CPU.
PolicyCheck check_policy(const Spec& spec, const workload::Workload& workload, int64_t max_tokens,
                         int64_t prompt, cuda::Gpu* gpu = nullptr);
// The same with any policy, so that a test can compare a cache with one that it does not follow.
PolicyCheck check_policy(const Spec& spec, const reference::Policy& policy,
                         const workload::Workload& workload, int64_t max_tokens, int64_t prompt,
                         cuda::Gpu* gpu = nullptr);

// Of two groups of layers, neither of which failed: the larger of each, and "no_policy" if one has none.
PolicyCheck joined(const PolicyCheck& a, const PolicyCheck& b);

// The FP64 policy of a spec's retention, which has one, for a layer of so many KV heads.
reference::Policy policy_of(const Spec& spec, int64_t max_tokens, int kv_heads);

}  // namespace kv::verify
