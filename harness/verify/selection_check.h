// Compares the rows that attention has read with the FP64 selection of harness/verify/reference.
//
// A wrong choice leaves a plausible output: the kernel is right about the rows that it was given. Every choice must be
// the FP64 selection's over the same stored rows, but for near ties that f32 sums order otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "harness/verify/policy_check.h"
#include "harness/verify/reference/selection.h"
#include "variants/cache/cache.h"

namespace kv::verify {

struct Output;

struct SelectionCheck {
  // fp64: compared with the FP64 selection; no_oracle: there is none; empty: all rows are read.
  std::string_view oracle;
  int64_t choices = 0;      // rows or pages that were read
  int64_t disputed = 0;     // of these, near ties that were decided otherwise
  double worst_miss = 0.0;  // of these
  double bound = 0.0;       // of worst_miss

  // What the newest attention read for one kv head of an output; nothing where the spec reads all.
  void add(Cache& cache, const Output& output, int kv_head);
  void add(const SelectionCheck& other);
  // Empty if all is within its bound, else what is not.
  std::string failure() const;
};

}  // namespace kv::verify
