#include "kernels/cpu/isa.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cctype>
#include <stdexcept>

#include "kernels/cpu/targets.h"

#include <hwy/highway.h>

namespace kv::cpu {
namespace {

std::string lower_name(int64_t target) {
  std::string name = hwy::TargetName(target);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

struct Targets {
  std::vector<int64_t> built, left_out;  // targets that this machine runs; best first
};

Targets find_targets() {
  hwy::SetSupportedTargetsForTest(0);  // 0: forget a forced one
  // Highway gives better targets lower bits.
  const auto supported = [](int64_t mask) {
    std::vector<int64_t> found;
    for (mask &= hwy::SupportedTargets(); mask != 0; mask &= mask - 1) found.push_back(mask & -mask);
    return found;
  };
  // Its one-lane target is left out: our own scalar path serves there.
  return {supported(HWY_TARGETS & ~int64_t{HWY_SCALAR}), supported(int64_t{KVLAB_ABSENT_TARGETS})};
}

const Targets& targets() {
  static const Targets found = find_targets();
  return found;
}

const std::vector<int64_t>& all_targets() { return targets().built; }

struct Active {
  std::string name;
  bool scalar;
  Active() { set(all_targets().empty() ? "scalar" : lower_name(all_targets().front())); }
  void set(std::string_view isa) {
    name = isa;
    scalar = isa == "scalar";
  }
};

Active& active() {
  static Active instance;
  return instance;
}

}  // namespace

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const int64_t target : all_targets()) names.push_back(lower_name(target));
  names.push_back("scalar");
  return names;
}

std::string why_isas_are_missing() {
#ifdef KVLAB_ISAS_BY_DEFAULT
  const std::vector<int64_t>&built = targets().built, &left_out = targets().left_out;
  if (!left_out.empty() && (built.empty() || left_out.front() < built.front())) {
    return "this machine has " + lower_name(left_out.front()) +
           ", which this build leaves out; cmake --preset release -DKVLAB_ISAS=all compiles it";
  }
#endif
  return "";
}

std::string_view active_isa() { return active().name; }

bool isa_is_scalar() { return active().scalar; }

void force_isa(std::string_view isa) {
  if (isa == "none") {
    active().set(isa);
    return;
  }
  const std::vector<std::string> names = available_isas();
  const std::string wanted = isa == "auto" ? names.front() : std::string(isa);
  const auto found = std::find(names.begin(), names.end(), wanted);
  if (found == names.end()) {
    std::string known = "auto";
    for (const std::string& name : names) known += ", " + name;
    throw std::invalid_argument("isa '" + std::string(isa) + "' is not available; there are " + known +
                                ", and others of this machine in a build with -DKVLAB_ISAS=all");
  }
  const size_t index = static_cast<size_t>(found - names.begin());
  hwy::SetSupportedTargetsForTest(index < all_targets().size() ? all_targets()[index] : 0);
  active().set(wanted);
}

}  // namespace kv::cpu
