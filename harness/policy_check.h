// Holds what a cache evicts against the FP64 policies of harness/reference_policies.h.
//
// A wrong eviction leaves a plausible output: the kernel is right about the rows that are there. So a cache
// of the spec's own is fed the workload token by token and followed in FP64: each of its choices must be the
// policy's, but for near ties that f32 sums order otherwise, and each of its outputs that policy's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/reference_policies.h"
#include "harness/results.h"
#include "harness/workload.h"
#include "kernels/span.h"
#include "variants/spec.h"

namespace kv {

// How far two scores may be apart, as a share, for a kernel with this error bound to order them otherwise
// than FP64.
inline double near_tie(double kernel_bound) { return kernel_bound > 1e-5 ? 2e-4 : 2e-5; }
// What the check may cost: multiply-adds in FP64, well under a second. Longer sequences are cut to what that
// allows; where nothing would be evicted within it, nothing is checked.
inline constexpr double kPolicyCheckWork = 5e8;

struct PolicyCheck {
  int64_t tokens = 0;       // 0: not checked, as it would cost too much or nothing is evicted
  int64_t choices = 0;      // rows that had to go
  int64_t disputed = 0;     // of these, near ties that were decided otherwise
  double worst_miss = 0.0;  // of the disputed ones
  double kernel_bound = 0.0;
  double out_rel_l2 = 0.0;  // of all outputs, against FP64 attention over what the policy left
  // Empty if all is within its bound, else what is not.
  std::string failure() const;
  void write(Row& cell) const;
};

// Layer 0 of the workload's sequence 0, at most its first two kv heads. `max_tokens`: of the cache that it
// stands for, since budgets may be shares of it. `prompt`: tokens of the first step.
PolicyCheck check_policy(const Spec& spec, const Workload& workload, int64_t max_tokens, int64_t prompt);
// The same against any policy, so that a test can hold a cache against one that it does not follow.
PolicyCheck check_policy(const Spec& spec, const reference::Policy& policy, const Workload& workload,
                         int64_t max_tokens, int64_t prompt);

// rows [.., head_dim] as they come back from an encoding that takes them one by one.
std::vector<float> through_codec(const Encoding& encoding, int head_dim, const std::vector<float>& rows);

// The FP64 policy of a spec's retention.
reference::Policy policy_of(const Spec& spec, int64_t max_tokens);

}  // namespace kv
