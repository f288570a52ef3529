// Compares a cache's evictions with the FP64 policies of harness/verify/reference.
//
// A wrong eviction leaves a plausible output, because the kernel is right about the remaining rows. A cache of the
// same spec is therefore fed the workload token by token and followed in FP64: each of its choices must be the
// policy's, except near ties that f32 sums order otherwise, and each of its outputs must be that policy's. A
// retention without an FP64 policy is not compared, and its cells say so.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "harness/verify/reference/policy_replay.h"
#include "harness/verify/reference/selection.h"
#include "harness/workload/workload.h"
#include "kernels/span.h"
#include "variants/cache/cache.h"
#include "variants/cache/spec.h"

namespace kv::cuda {
class Gpu;
}

namespace kv::verify {

// Relative distance of two scores that a kernel with this error bound may order otherwise than FP64.
inline double near_tie(double kernel_bound) { return kernel_bound > 1e-5 ? 2e-4 : 2e-5; }
// The check's limit of work: FP64 multiply-adds, well under a second. Longer sequences are cut to it; nothing is
// checked if nothing would be evicted within it.
inline constexpr double kPolicyCheckWork = 5e8;

struct PolicyCheck {
  // fp64: compared with the FP64 policy. no_policy: there is none. Empty: nothing is evicted, or comparing would cost
  // too much.
  std::string_view oracle;
  int64_t tokens = 0;       // compared tokens
  int64_t choices = 0;      // evicted rows
  int64_t disputed = 0;     // near ties among them that were decided otherwise
  double worst_miss = 0.0;  // among the disputed choices
  double kernel_bound = 0.0;
  double out_rel_l2 = 0.0;  // all outputs, against FP64 attention over the rows that the policy left
  // The violated bound, or empty if all hold.
  std::string failure() const;
};

// Checks layer 0 of the workload's sequence 0, at most its first two KV heads. `max_tokens`: of the measured cache,
// since budgets may be shares of it. `prompt`: tokens of the first step. `gpu`: the cache's device; null for the CPU.
PolicyCheck check_policy(const Spec& spec, const workload::Workload& workload, int64_t max_tokens,
                         int64_t prompt, cuda::Gpu* gpu = nullptr);
// The same with any policy: a test can compare a cache with a policy that it does not follow.
PolicyCheck check_policy(const Spec& spec, const reference::Policy& policy,
                         const workload::Workload& workload, int64_t max_tokens, int64_t prompt,
                         cuda::Gpu* gpu = nullptr);

// Joins two groups of layers that passed: the larger of each number, and "no_policy" if either has none.
PolicyCheck joined(const PolicyCheck& a, const PolicyCheck& b);

// The FP64 policy of a spec's retention for a layer of `kv_heads` KV heads. The retention must have one.
reference::Policy policy_of(const Spec& spec, int64_t max_tokens, int kv_heads);

struct Output;

// Compares the rows that attention read with the FP64 selection over the same stored rows: a wrong choice leaves a plausible
// output, because the kernel is right about the rows it was given. Near ties, which f32 sums order otherwise, may differ.
struct SelectionCheck {
  // fp64: compared with the FP64 selection. no_oracle: there is none. Empty: all rows are read.
  std::string_view oracle;
  int64_t choices = 0;      // rows or pages read
  int64_t disputed = 0;     // near ties among them that were decided otherwise
  double worst_miss = 0.0;  // among the disputed choices
  double bound = 0.0;       // limit of worst_miss

  // Adds the newest attention's choice for one KV head of an output; nothing if the spec reads all rows.
  void add(Cache& cache, const Output& output, int kv_head);
  void add(const SelectionCheck& other);
  // The violated bound, or empty if all hold.
  std::string failure() const;
};

}  // namespace kv::verify
