#include "harness/planner/measured_steps.h"
#include "harness/measure/time_columns.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <stdexcept>

namespace kv::planner {

// A feature that would make a step shorter is left out, the worst first, and the others are fitted again.
FittedLine::FittedLine(std::span<const Point> points) : coefficients_(points.front().features.size()) {
  const size_t features = coefficients_.size();
  least_.assign(features, std::numeric_limits<double>::infinity());
  most_.assign(features, 0.0);
  std::vector<size_t> used(features);
  std::iota(used.begin(), used.end(), size_t{0});
  while (!used.empty()) {
    Eigen::MatrixXd a(std::ssize(points), std::ssize(used));
    for (Eigen::Index i = 0; i < a.rows(); ++i) {
      const Point& p = points[static_cast<size_t>(i)];
      for (Eigen::Index j = 0; j < a.cols(); ++j)
        a(i, j) = p.features[used[static_cast<size_t>(j)]] / p.seconds;
    }
    const Eigen::VectorXd c = a.colPivHouseholderQr().solve(Eigen::VectorXd::Ones(a.rows()));
    Eigen::Index worst = 0;
    if (c.minCoeff(&worst) >= 0.0) {
      for (Eigen::Index j = 0; j < c.size(); ++j) coefficients_[used[static_cast<size_t>(j)]] = c[j];
      break;
    }
    used.erase(used.begin() + worst);
  }
  for (const Point& p : points) {
    for (size_t j = 0; j < features; ++j) {
      least_[j] = std::min(least_[j], p.features[j]);
      most_[j] = std::max(most_[j], p.features[j]);
    }
    residual_ = std::max(residual_, std::abs(p.seconds / seconds(p.features) - 1.0));
  }
}

double FittedLine::seconds(std::span<const double> features) const {
  return std::inner_product(features.begin(), features.end(), coefficients_.begin(), 0.0);
}

bool FittedLine::is_beyond(std::span<const double> features) const {
  for (size_t j = 0; j < features.size(); ++j)
    if (features[j] < least_[j] || features[j] > most_[j]) return true;
  return false;
}

namespace {

bool is_of(const results::Row& cell, bool whole, const config::Geometry& g, const std::string& variant) {
  return cell[measure::kProjectionsP50Us].has_value() == whole && cell[results::kVariant] == variant &&
         cell[results::kStatus] == results::Status::kOk && !results::is_aa_test(cell) &&
         cell[measure::kStepP50Us] && cell[results::kKeptTokens] && cell[results::kLayers] &&
         cell[results::kBatch] && cell[results::kQHeads] == g.q_heads &&
         cell[results::kKvHeads] == g.kv_heads && cell[results::kHeadDim] == g.head_dim &&
         (!whole || cell[results::kLayers] == g.layers);
}

// Rows that the queries of a prompt read, one after the other, of which `kept` stay.
double rows_of_prompt(double tokens, double kept) {
  return tokens <= kept ? tokens * (tokens + 1) / 2 : kept * (kept + 1) / 2 + (tokens - kept) * kept;
}

}  // namespace

void MeasuredSteps::read(const results::Row& cell) {
  const auto batch = static_cast<double>(*cell[results::kBatch]),
             kept = static_cast<double>(*cell[results::kKeptTokens]);
  // A model's other layers come between two steps of a layer, so its rows are not in the processor's caches.
  const bool cold = !whole_ && cell[measure::kColdAttendP50Us] && cell[measure::kAppendP50Us];
  const double us =
      cold ? *cell[measure::kAppendP50Us] + *cell[measure::kColdAttendP50Us] : *cell[measure::kStepP50Us];
  const double times = whole_ ? 1.0 : layers_ / static_cast<double>(*cell[results::kLayers]);
  steps_.push_back({{1.0, batch, batch * kept}, us * 1e-6 * times});
  if (!whole_ || !cell[measure::kPrefillP50Us] || !cell[measure::kPrefillTokensPerS]) return;
  const double seconds = *cell[measure::kPrefillP50Us] * 1e-6,
               tokens = std::round(*cell[measure::kPrefillTokensPerS] * seconds / batch);
  // A step finds the whole prompt, or less if the retention drops rows.
  prompt_steps_.push_back({{batch * tokens, batch * rows_of_prompt(tokens, std::max(kept, 1.0))}, seconds});
}

MeasuredSteps::MeasuredSteps(std::span<const results::Row> cells, const config::Geometry& g,
                             const std::string& variant, const std::string& name)
    : layers_(static_cast<double>(g.layers)) {
  std::set<std::string> machines;
  for (const bool whole : {true, false}) {
    whole_ = whole;
    for (const results::Row& cell : cells) {
      if (!is_of(cell, whole, g, variant)) continue;
      read(cell);
      machines.insert(cell[results::kHost] + " " + cell[results::kDevice] + ", threads " +
                      std::to_string(cell[results::kThreads].value_or(0)));
    }
    if (!steps_.empty()) break;
  }
  if (machines.size() > 1)
    throw std::invalid_argument(name + " has steps of " + variant + " on more than one machine: " +
                                *machines.begin() + "; " + *machines.rbegin());
  const auto count = [](const std::vector<FittedLine::Point>& points, size_t feature) {
    std::set<double> values;
    for (const FittedLine::Point& p : points) values.insert(p.features[feature]);
    return values.size();
  };
  std::set<double> lengths;
  for (const FittedLine::Point& p : steps_) lengths.insert(p.features[2] / p.features[1]);
  if (steps_.size() < 4 || count(steps_, 1) < 2 || lengths.size() < 2)
    throw std::invalid_argument(
        name + " has " + std::to_string(steps_.size()) + " cells of decode steps of " + variant + " over " +
        std::to_string(g.q_heads) + "/" + std::to_string(g.kv_heads) + " heads of " +
        std::to_string(g.head_dim) + "; a clock needs at least 2 batches and 2 lengths of it");
  decode_ = FittedLine(steps_);
  if (count(prompt_steps_, 0) >= 2) prompts_ = FittedLine(prompt_steps_);
}

MeasuredSteps::Time MeasuredSteps::decode(int64_t sequences, double rows) const {
  if (sequences == 0) return {};
  const double features[] = {1.0, static_cast<double>(sequences), rows / layers_};
  return {decode_.seconds(features), decode_.is_beyond(features)};
}

MeasuredSteps::Time MeasuredSteps::prompts(int64_t tokens, double rows, bool alone) const {
  if (tokens == 0) return {};
  const double features[] = {static_cast<double>(tokens), rows / layers_};
  const double seconds = prompts_.seconds(features);
  return {alone ? std::max(seconds, decode_.coefficient(0)) : seconds, prompts_.is_beyond(features)};
}

}  // namespace kv::planner
