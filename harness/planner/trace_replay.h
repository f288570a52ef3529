// Requests through a cache's own allocator on a simulated clock, as the scheduler (scheduler.h) lets them in.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "harness/io/request_trace.h"
#include "harness/planner/row_allocator.h"
#include "harness/planner/scheduler.h"
#include "harness/planner/step_time.h"
#include "harness/planner/timeline.h"

namespace kv::planner {

// A test's view of a replay: called between two steps, and once for each request.
struct Watch {
  std::function<void(const std::vector<Live>& running, size_t waiting)> step;
  std::function<void(const Live& request, bool refused)> end;
};

struct ReplayResult : Scheduler::Counts {
  int64_t requests = 0, refused = 0, steps = 0;
  int64_t prompt_tokens = 0, generated_tokens = 0;
  double seconds = 0.0;           // simulated clock, first arrival to last answer
  std::vector<double> running_s;  // seconds with so many sequences running
  std::vector<double> waiting_s;  // and with so many waiting
  // By served request: seconds to admission, to the first token, for each further one.
  std::vector<double> wait_s, ttft_s, tpot_s;
  std::vector<double> good;  // by request, refused ones too: 1 within the limits, else 0
  // Beside ttft_s, tpot_s and good: the session, or the minute of the arrival where the trace has none.
  std::vector<int64_t> cluster, tpot_cluster, good_cluster;
  int64_t peak_held_bytes = 0;
  double slack_share = 0.0;  // share of the held bytes that is no filled row: mean over time
  Moment mean;               // over the time of all steps
  StepSeconds times;         // all steps
  Timeline timeline;

  void refuse(int64_t of_cluster);
  // Adds a request that was served, and whether it is good.
  void add(double arrival_s, double first_s, double last_s, int64_t tokens, int64_t of_cluster,
           const SchedulerSettings& limits);
  // The fewest sequences that ran at most for the share `p` of the time in which any did; in percent.
  int64_t running_percentile(double p) const;
  int64_t peak_running() const;
  // Likewise of those that waited.
  int64_t waiting_percentile(double p) const;
  int64_t peak_waiting() const;
  // The share of the prompts' tokens that the prefix cache had.
  double hit_rate() const { return static_cast<double>(found_tokens) / static_cast<double>(prompt_tokens); }
};

// The work of a step, whose sequences keep rows so (RowAllocator::kept()).
StepWork work_of(const StepPlan& plan, std::span<const RowAllocator::Kept> kept);

// The seconds that a step takes: StepTime's, or those of running it.
using StepDriver = std::function<StepSeconds(const StepPlan& plan, const StepWork& work)>;

// Gives these requests one after another, until `stop` says so.
std::function<bool(io::Request&)> in_turn(std::span<const io::Request> all,
                                          const std::function<bool()>& stop = {});
// `next` gives the requests in the order of arrival; false at the end.
ReplayResult replay(const std::function<bool(io::Request&)>& next, RowAllocator& rows,
                    const StepDriver& driver, const SchedulerSettings& settings, const Watch& watch = {},
                    RowsMirror* mirror = nullptr);

}  // namespace kv::planner
