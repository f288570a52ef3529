#include "harness/measure/compare_cells.h"

#include <vector>

#include "harness/math/medians.h"
#include "harness/measure/time_columns.h"
#include "harness/results/cell_columns.h"

namespace kv::measure {
namespace {

void write_ratio(const Comparison& of, const math::Ratio& ratio, double confidence) {
  results::Row& row = of.cell->result;
  const math::ConfidenceInterval interval = ratio.interval(confidence);
  row[results::kVersus] = of.versus;
  row.set(kRatioP50, ratio.value, interval);
  row[kRatioConfidence] = confidence;
  if (!results::is_aa_test(row)) row[results::kVerdict] = math::text_of(math::compare(interval));
  if (of.cell->cold.empty() || of.baseline->cold.empty()) return;
  const math::Ratio cold =
      math::ratio_of_medians(repetition_medians(of.cell->cold), repetition_medians(of.baseline->cold));
  row.set(kColdRatioP50, cold.value, cold.interval(confidence));
}

}  // namespace

void compare_cells(std::span<const Comparison> comparisons) {
  std::vector<const Comparison*> together;
  std::vector<math::Ratio> ratios;
  std::vector<double> p_values;
  for (const Comparison& of : comparisons) {
    if (of.cell->steps.empty() || of.baseline->steps.empty()) continue;
    if (of.cell == of.baseline) {
      of.cell->result[results::kVerdict] = "baseline";
      continue;
    }
    const math::Ratio ratio =
        math::ratio_of_medians(repetition_medians(of.cell->steps), repetition_medians(of.baseline->steps));
    if (results::is_aa_test(of.cell->result)) {
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
