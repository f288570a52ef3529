// How much of a choice fits into a time, by how long the first window of its text took.
#pragma once

namespace kv::choose {

struct FirstWindow {
  double seconds;             // of all caches
  double confirmation_share;  // of that, for a window of the confirmation
  double mixture_windows;     // as many take as long as the mixture's reading by layer
};

struct FittingParts {
  int windows;  // of the calibration, and of the confirmation; 0: not even one
  bool mixture;
};
// All of `asked` that `seconds` have room for beside the first window; the mixture only if it leaves the windows half of the time.
FittingParts fitting_parts(double seconds, const FirstWindow& first, const FittingParts& asked);

// Time of so many windows with everything else but the mixture.
double seconds_for(int windows, const FirstWindow& first);

}  // namespace kv::choose
