// Compares the rows that attention read with the FP64 selection of harness/verify/reference.
//
// A wrong choice leaves a plausible output, because the kernel is right about the rows it was given. Every choice
// must be the FP64 selection's over the same stored rows, except near ties that f32 sums order otherwise.
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
