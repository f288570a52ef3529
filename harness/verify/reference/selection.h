// The rows that a selection reads, in FP64. Each selection is written from its paper and its documented rule alone
// and shares no code with variants/, so that a wrong choice there shows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "harness/verify/reference/attention.h"
#include "harness/verify/reference/policy.h"

namespace kv::reference {

// One KV head and the newest token's queries.
struct SelectionHead {
  std::span<const float> q;  // [group, head_dim]
  std::span<const float> k;  // [rows, head_dim] as they are stored
  int head_dim;
  int64_t rows;
  std::vector<SoftmaxTerms> terms;  // [group]
};

// The candidates of a selection: candidate i is rows [i * rows_each, (i + 1) * rows_each); the last may be shorter.
struct Candidates {
  std::vector<double> score;  // one a candidate; an infinite score is always read
  std::vector<double> size;   // magnitude to which a score's rounding is relative
  int64_t rows_each = 1;
  int64_t count = 1;  // number of candidates read: the largest scores, the first of equals
};

// A selection's numbers by their names in spec strings, as in policy.h; a decimal number in hundredths. Empty if this
// file has no such selection.
std::optional<Candidates> candidates_of(std::string_view selection, const Parameters& parameters,
                                        const SelectionHead& head);

// Chosen rows, ascending.
std::vector<int64_t> chosen_rows(const Candidates& of, int64_t rows);

// The difference between a choice and the FP64 choice.
struct SelectionMiss {
  int64_t choices = 0, disputed = 0;  // candidates read; those of them that FP64 does not read
  double worst = 0.0;  // relative distance by which the smallest score read misses the largest unread
};
// Infinite if `read` (ascending) does not consist of whole candidates, or of another number of them.
SelectionMiss miss_of(const Candidates& of, std::span<const int64_t> read, int64_t rows);

}  // namespace kv::reference
