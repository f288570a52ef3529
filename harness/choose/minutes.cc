#include "harness/choose/minutes.h"

#include <algorithm>
#include <cmath>

namespace kv::choose {
namespace {

constexpr double kShareOfSteps = 0.1;  // for the steps' times; they are few

}  // namespace

FittingParts fitting_parts(double seconds, const FirstWindow& first, const FittingParts& asked) {
  double left = (seconds - first.seconds) * (1 - kShareOfSteps) / first.seconds;  // in windows
  const bool mixture = asked.mixture && first.mixture_windows <= left / 2;
  if (mixture) left -= first.mixture_windows;
  const double windows = std::floor(left / (1 + first.confirmation_share));
  return {static_cast<int>(std::clamp(windows, 0.0, static_cast<double>(asked.windows))), mixture};
}

double seconds_for(int windows, const FirstWindow& first) {
  return first.seconds * (1 + windows * (1 + first.confirmation_share) / (1 - kShareOfSteps));
}

}  // namespace kv::choose
