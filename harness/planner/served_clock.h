// Times of a server's steps, fitted to steps that ran: one line in the work of a step.
#pragma once

#include <array>
#include <span>

#include "harness/planner/measured_steps.h"
#include "harness/planner/step_time.h"
#include "harness/results/row.h"

namespace kv::planner {

class ServedClock {
 public:
  // Seconds of a step, of each sequence that decodes, of each other token, of each row that a decoding query reads, and of each
  // row that a prompt's query reads.
  using Costs = std::array<double, 5>;
  explicit ServedClock(const Costs& costs) : costs_(costs) {}

  struct Step {
    StepWork work;
    double seconds;
  };
  // The least squares of relative errors; no cost is negative. At least one step.
  static ServedClock fitted(std::span<const Step> steps);

  double seconds(const StepWork& work) const;
  StepSeconds operator()(const StepPlan&, const StepWork& work) const { return {.measured = seconds(work)}; }
  const Costs& costs() const { return costs_; }
  // The median of |seconds / fitted - 1| over the steps.
  double residual(std::span<const Step> steps) const;

  // The costs in a cell's columns.
  void write(results::Row& cell) const;
  static std::optional<ServedClock> read(const results::Row& cell);

 private:
  Costs costs_;
};

inline constexpr results::NumberColumn kClockStepUs{
    "clock_step_us", "us",
    "fitted to the steps that ran: time of a step without that of its tokens and their reads"};
inline constexpr results::NumberColumn kClockSequenceUs{"clock_sequence_us", "us",
                                                        "fitted: time of a sequence that decodes"};
inline constexpr results::NumberColumn kClockTokenUs{"clock_token_us", "us",
                                                     "fitted: time of a token of a prompt, or of padding"};
inline constexpr results::NumberColumn kClockDecodedRowUs{
    "clock_decoded_row_us", "us", "fitted: time of a cached token of a layer that a decoding token reads"};
inline constexpr results::NumberColumn kClockRowUs{
    "clock_row_us", "us", "fitted: time of a cached token of a layer that a prompt's token reads"};
inline constexpr auto kServedClockColumns =
    results::column_list(kClockStepUs, kClockSequenceUs, kClockTokenUs, kClockDecodedRowUs, kClockRowUs);

}  // namespace kv::planner
