// The verdicts on a published figure; configs/claims/README.md says what each means. check.cc gives one of these, and tables,
// CSV files and reports name no other.
#pragma once

#include <array>
#include <string_view>

namespace kv::claims {

struct Verdict {
  std::string_view name;
  int rank;  // a claim of several figures explains the verdict of the lowest rank first
};

inline constexpr Verdict kReproduced{"reproduced", 6};
inline constexpr Verdict kConsistent{"consistent", 4};
inline constexpr Verdict kByConstruction{"true by construction", 5};
inline constexpr Verdict kInconclusive{"inconclusive", 2};
inline constexpr Verdict kDiffers{"differs in this replica", 1};
inline constexpr Verdict kContradicted{"contradicted", 0};
inline constexpr Verdict kNotTestable{"not testable here", 3};

// In the order of tables.
inline constexpr std::array kVerdicts = {&kReproduced, &kConsistent,   &kByConstruction, &kInconclusive,
                                         &kDiffers,    &kContradicted, &kNotTestable};

}  // namespace kv::claims
