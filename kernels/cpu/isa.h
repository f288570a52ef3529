// The instruction set of the vector kernels. Highway compiles each kernel once a target and picks the best at
// run time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kv::cpu {

// Targets of this build that this machine can run, best first, then "scalar": the plain path that the others are checked
// against.
std::vector<std::string> available_isas();

// A line for the user where this machine has better ones than this build, made for another machine; else empty.
std::string why_isas_are_missing();

// The one in use: "avx3_zen4", "avx2", …, or "scalar".
std::string_view active_isa();

// Uses `isa` from here on; "auto" is the best there is, and "none" computes nothing, for benchmarks of all
// that is not attention. Throws std::invalid_argument with the list if it is not available. Not for use while
// kernels run.
void force_isa(std::string_view isa);

bool isa_is_scalar();  // cheap enough to ask for every row

}  // namespace kv::cpu
