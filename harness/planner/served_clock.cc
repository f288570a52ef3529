#include "harness/planner/served_clock.h"

#include <cmath>
#include <numeric>

#include "harness/math/stats.h"

namespace kv::planner {
namespace {

ServedClock::Costs features_of(const StepWork& work) {
  return {1.0, static_cast<double>(work.decoding), static_cast<double>(work.tokens - work.decoding),
          work.decoded_pairs, work.pairs};
}

constexpr std::array kCostColumns{kClockStepUs, kClockSequenceUs, kClockTokenUs, kClockDecodedRowUs,
                                  kClockRowUs};

}  // namespace

ServedClock ServedClock::fitted(std::span<const Step> steps) {
  std::vector<FittedLine::Point> points;
  for (const Step& step : steps) {
    const Costs features = features_of(step.work);
    points.push_back({{features.begin(), features.end()}, step.seconds});
  }
  const FittedLine line(points);
  Costs costs;
  for (size_t i = 0; i < costs.size(); ++i) costs[i] = line.coefficient(i);
  return ServedClock(costs);
}

double ServedClock::seconds(const StepWork& work) const {
  const Costs features = features_of(work);
  return std::inner_product(features.begin(), features.end(), costs_.begin(), 0.0);
}

double ServedClock::residual(std::span<const Step> steps) const {
  std::vector<double> errors;
  for (const Step& step : steps) errors.push_back(std::abs(step.seconds / seconds(step.work) - 1.0));
  return math::median(errors);
}

void ServedClock::write(results::Row& cell) const {
  for (size_t i = 0; i < costs_.size(); ++i) cell[kCostColumns[i]] = 1e6 * costs_[i];
}

std::optional<ServedClock> ServedClock::read(const results::Row& cell) {
  Costs costs;
  for (size_t i = 0; i < costs.size(); ++i) {
    if (!cell[kCostColumns[i]]) return {};
    costs[i] = 1e-6 * *cell[kCostColumns[i]];
  }
  return ServedClock(costs);
}

}  // namespace kv::planner
