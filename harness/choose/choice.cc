#include "harness/choose/choice.h"

#include <algorithm>
#include <cmath>

#include "harness/math/medians.h"

namespace kv::choose {
namespace {

double reach(const ExtraLoss& loss, double confidence) {
  return loss.error > 0 ? loss.error * math::student_quantile(confidence, loss.degrees) : 0;
}

constexpr double kShareOfSteps = 0.1;  // for the steps' times; they are few

}  // namespace

double ExtraLoss::low() const { return value - reach(*this, math::kConfidence); }
double ExtraLoss::high() const { return value + reach(*this, math::kConfidence); }

double upper_bound(const ExtraLoss& loss, int together) {
  return loss.value + reach(loss, 1 - 2 * (1 - math::kConfidence) / together);
}

std::vector<size_t> to_confirm(std::span<const Candidate> candidates, int64_t memory_bytes, double most_loss,
                               size_t most) {
  std::vector<size_t> fitting;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].bytes <= memory_bytes) fitting.push_back(i);
  }
  if (fitting.empty()) return {};
  const size_t best = *std::min_element(fitting.begin(), fitting.end(), [&](size_t a, size_t b) {
    return candidates[a].calibrated.value < candidates[b].calibrated.value;
  });
  std::stable_sort(fitting.begin(), fitting.end(),
                   [&](size_t a, size_t b) { return candidates[a].bytes < candidates[b].bytes; });
  std::vector<size_t> confirmed{best};
  const auto add = [&](size_t up_to, const auto& wanted) {
    for (const size_t i : fitting) {
      if (confirmed.size() < up_to && wanted(candidates[i].calibrated) &&
          std::find(confirmed.begin(), confirmed.end(), i) == confirmed.end())
        confirmed.push_back(i);
    }
  };
  add(most - most / 3,
      [&](const ExtraLoss& loss) { return loss.low() <= candidates[best].calibrated.high(); });
  add(most, [&](const ExtraLoss& loss) { return loss.high() <= most_loss; });
  return confirmed;
}

std::vector<size_t> keeping(std::span<const Candidate> candidates, double most_loss) {
  const auto together = static_cast<int>(std::count_if(
      candidates.begin(), candidates.end(), [](const Candidate& c) { return c.confirmed.has_value(); }));
  std::vector<size_t> kept;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].confirmed && upper_bound(*candidates[i].confirmed, together) <= most_loss)
      kept.push_back(i);
  }
  std::stable_sort(kept.begin(), kept.end(),
                   [&](size_t a, size_t b) { return candidates[a].bytes < candidates[b].bytes; });
  return kept;
}

Choice choice_of(std::span<const Candidate> candidates, double most_loss, double least_rate) {
  Choice choice{keeping(candidates, most_loss)};
  std::erase_if(choice.best, [&](size_t i) {
    return least_rate > 0 && !(candidates[i].speed && candidates[i].speed->low >= least_rate);
  });
  if (choice.best.empty()) return choice;
  choice.fewest = choice.best.front();
  const size_t least = *std::min_element(choice.best.begin(), choice.best.end(), [&](size_t a, size_t b) {
    return candidates[a].confirmed->value < candidates[b].confirmed->value;
  });
  const double most = candidates[least].confirmed->high();
  std::erase_if(choice.best, [&](size_t i) { return candidates[i].confirmed->low() > most; });
  return choice;
}

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
