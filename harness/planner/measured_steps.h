// Times of steps from cells measured on one machine: lines in the step's work. Published simulators find decode linear in
// batch x kept tokens; the largest residual says how linear it is here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/config/geometry.h"
#include "harness/results/cell_columns.h"

namespace kv::planner {

// seconds = sum of coefficients times features; no coefficient is negative.
class FittedLine {
 public:
  struct Point {
    std::vector<double> features;
    double seconds;
  };
  FittedLine() = default;
  // Least squares of relative errors, so that short times count as much as long ones.
  explicit FittedLine(std::span<const Point> points);
  explicit operator bool() const { return !coefficients_.empty(); }
  double seconds(std::span<const double> features) const;
  // True if a feature lies outside the range of the points.
  bool is_beyond(std::span<const double> features) const;
  double coefficient(size_t feature) const { return coefficients_[feature]; }
  // The largest of |seconds / fitted - 1| over the points.
  double residual() const { return residual_; }

 private:
  std::vector<double> coefficients_, least_, most_;
  double residual_ = 0.0;
};

class MeasuredSteps {
 public:
  // Takes this variant's cells over this geometry's heads, whose steps are at one length each: whole steps of as many layers,
  // with prompts where the model read them; else steps of attention alone, cold where that was measured, which count for
  // each of the model's layers. `name`: the folder's, for messages. Throws std::invalid_argument where
  // there are fewer than 2 batches and 2 lengths, or several machines or numbers of threads.
  MeasuredSteps(std::span<const results::Row> cells, const config::Geometry& geometry,
                const std::string& variant, const std::string& name);

  struct Time {
    double seconds = 0.0;
    bool beyond = false;  // outside the measured range: the line is extrapolated
  };
  // `sequences` decode a token each and read `rows` rows, over all layers that keep any.
  Time decode(int64_t sequences, double rows) const;
  // Chunks of prompts of so many tokens, whose queries read `rows` rows; `alone`: no sequence decodes in the same step, so
  // it takes at least as long as an empty step. Only if has_prompts().
  Time prompts(int64_t tokens, double rows, bool alone) const;

  bool whole_steps() const { return whole_; }
  bool has_prompts() const { return static_cast<bool>(prompts_); }
  double residual() const { return std::max(decode_.residual(), prompts_.residual()); }

 private:
  void read(const results::Row& cell);

  bool whole_ = false;
  double layers_;  // layers of the model that keep rows
  std::vector<FittedLine::Point> steps_, prompt_steps_;
  FittedLine decode_;   // features: 1, sequences, rows of a layer
  FittedLine prompts_;  // features: tokens, rows of a layer
};

}  // namespace kv::planner
