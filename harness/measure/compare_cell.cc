#include "harness/measure/compare_cell.h"

#include <cmath>
#include <limits>

#include "harness/math/stats.h"

namespace kv::measure {
namespace {

// Too few repetitions leave the interval open.
math::ConfidenceInterval closed(const math::ConfidenceInterval& interval) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  return std::isfinite(interval.high) ? interval : math::ConfidenceInterval{-kNone, kNone};
}

}  // namespace

void compare_cell(Cell& cell, const Cell& baseline, const std::string& versus) {
  if (cell.steps.empty() || baseline.steps.empty()) return;
  if (&cell == &baseline) {
    cell.result.verdict = "baseline";
    return;
  }
  const math::Ratio ratio =
      math::ratio_of_medians(step_medians(cell), step_medians(baseline), math::Pairing::kIndependent);
  cell.result.versus = versus;
  cell.result.ratio_p50 = ratio.value;
  cell.result.ratio_ci_low = closed(ratio.interval).low;
  cell.result.ratio_ci_high = closed(ratio.interval).high;
  if (!cell.cold_us.empty() && !baseline.cold_us.empty()) {
    const auto cold = math::repetition_medians(cell.cold_us),
               base = math::repetition_medians(baseline.cold_us);
    const math::Ratio cold_ratio = math::ratio_of_medians(cold, base, math::Pairing::kIndependent);
    cell.result.cold_ratio_p50 = cold_ratio.value;
    cell.result.cold_ratio_ci_low = closed(cold_ratio.interval).low;
    cell.result.cold_ratio_ci_high = closed(cold_ratio.interval).high;
  }
  if (cell.result.is_aa_test()) return;
  const math::Verdict verdict = math::compare(ratio);
  cell.result.verdict = verdict == math::Verdict::kFaster   ? "faster"
                        : verdict == math::Verdict::kSlower ? "slower"
                                                            : "ambiguous";
}

}  // namespace kv::measure
