// What a selection in FP64 reads. Each is written from its paper and its documented rule alone, and shares no code with
// variants/, so that a wrong choice there shows.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/verify/reference/attention.h"
#include "harness/verify/reference/policy.h"

namespace kv::reference {

// One kv head and the newest token's queries.
struct SelectionHead {
  std::span<const float> q;  // [group, head_dim]
  std::span<const float> k;  // [rows, head_dim] as they are stored
  int head_dim;
  int64_t rows;
  std::vector<SoftmaxTerms> terms;  // [group]
};

// What it chooses among: candidate i is rows [i * rows_each, (i + 1) * rows_each), the last one perhaps shorter.
struct Candidates {
  std::vector<double> score;  // of each; an infinite one is read in any case
  std::vector<double> size;   // what rounding of its score is a share of
  int64_t rows_each = 1;
  int64_t count = 1;  // that are read, the largest scores, of equals the first
};

// A selection's numbers by their names in spec strings, as policy.h has them; a decimal number in hundredths. Empty
// where there is no such selection here.
std::optional<Candidates> candidates_of(std::string_view selection, const Parameters& parameters,
                                        const SelectionHead& head);

// The chosen rows, ascending.
std::vector<int64_t> chosen_rows(const Candidates& of, int64_t rows);

// How a choice differs from that.
struct SelectionMiss {
  int64_t choices = 0, disputed = 0;  // candidates read; those of them that FP64 does not read
  double worst = 0.0;  // by how much the least score read misses the largest unread, as a share of size
};
// Infinite where `read` (ascending) are not whole candidates, or not as many.
SelectionMiss miss_of(const Candidates& of, std::span<const int64_t> read, int64_t rows);

}  // namespace kv::reference
