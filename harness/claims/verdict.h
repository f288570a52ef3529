// What can become of a published figure. The one table of verdicts: check.cc gives one of these, and tables, CSV files and
// reports name no other.
#pragma once

#include <array>
#include <string_view>

namespace kv::claims {

struct Verdict {
  std::string_view name;
  int rank;  // the verdict of the lowest rank is the one that a claim of several figures explains first
  std::string_view meaning;
};

inline constexpr Verdict kReproduced{
    "reproduced", 6,
    "the computed value lies within the tolerance, and so does all of the measured 95 % interval"};
inline constexpr Verdict kConsistent{
    "consistent", 4,
    "a bound, or a figure given as \"up to\", allows the published value; nothing here reaches it"};
inline constexpr Verdict kByConstruction{"true by construction", 5,
                                         "agrees, and would have agreed whatever was computed or measured"};
inline constexpr Verdict kInconclusive{
    "inconclusive", 2,
    "measured, but the 95 % interval crosses the edge of the tolerance; or an ordering "
    "that was measured once, without an interval"};
inline constexpr Verdict kDiffers{
    "differs in this replica", 1,
    "disagrees, on other hardware, inputs or another size or model than the source's"};
inline constexpr Verdict kContradicted{"contradicted", 0,
                                       "disagrees, by the source's own numbers or in its own setting"};
inline constexpr Verdict kNotTestable{
    "not testable here", 3,
    "needs what is missing: a GPU, a large model, another codec, a setting that the source leaves out"};

// As tables list them.
inline constexpr std::array kVerdicts = {&kReproduced, &kConsistent,   &kByConstruction, &kInconclusive,
                                         &kDiffers,    &kContradicted, &kNotTestable};

}  // namespace kv::claims
