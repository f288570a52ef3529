#include "harness/measure/compare_cells.h"

#include <vector>

#include "harness/math/medians.h"

namespace kv::measure {
namespace {

const char* text_of(math::Verdict verdict) {
  switch (verdict) {
    case math::Verdict::kFaster:
      return "faster";
    case math::Verdict::kSlower:
      return "slower";
    case math::Verdict::kAmbiguous:
      break;
  }
  return "ambiguous";
}

void write_ratio(const Comparison& of, const math::Ratio& ratio, double confidence) {
  results::CellResult& row = of.cell->result;
  const math::ConfidenceInterval interval = ratio.interval(confidence);
  row.versus = of.versus;
  row.ratio_p50 = ratio.value;
  row.ratio_ci_low = interval.low;
  row.ratio_ci_high = interval.high;
  row.ratio_confidence = confidence;
  if (!row.is_aa_test()) row.verdict = text_of(math::compare(interval));
  if (of.cell->cold_us.empty() || of.baseline->cold_us.empty()) return;
  const math::Ratio cold = math::ratio_of_medians(math::repetition_medians(of.cell->cold_us),
                                                  math::repetition_medians(of.baseline->cold_us));
  row.cold_ratio_p50 = cold.value;
  row.cold_ratio_ci_low = cold.interval(confidence).low;
  row.cold_ratio_ci_high = cold.interval(confidence).high;
}

}  // namespace

void compare_cells(std::span<const Comparison> comparisons) {
  std::vector<const Comparison*> together;
  std::vector<math::Ratio> ratios;
  std::vector<double> p_values;
  for (const Comparison& of : comparisons) {
    if (of.cell->steps.empty() || of.baseline->steps.empty()) continue;
    if (of.cell == of.baseline) {
      of.cell->result.verdict = "baseline";
      continue;
    }
    const math::Ratio ratio = math::ratio_of_medians(step_medians(*of.cell), step_medians(*of.baseline));
    if (of.cell->result.is_aa_test()) {
      write_ratio(of, ratio, math::kConfidence);
      continue;
    }
    together.push_back(&of);
    ratios.push_back(ratio);
    p_values.push_back(ratio.p_value());
  }
  const std::vector<double> confidences = math::holm_confidences(p_values);
  for (size_t i = 0; i < together.size(); ++i) write_ratio(*together[i], ratios[i], confidences[i]);
}

}  // namespace kv::measure
