// Requests through a cache's own allocator on a simulated clock: continuous batching with chunked prefill.
//
// Each step has a budget of tokens. Running sequences decode first, in the order of arrival; what is left goes to
// chunks of prompts, running ones before waiting ones (Sarathi-Serve, arXiv:2403.02310). First come, first served: no
// request overtakes another. A request is admitted if there is room for its first chunk and a watermark of the pool is
// left. A decode that finds no room preempts the youngest sequence: its rows are dropped and computed again
// (vLLM's recomputation), or moved over the link and back (swap). A request that would not fit alone is refused when
// it arrives. A sequence's last token is never stored, as nobody reads it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "harness/io/request_trace.h"
#include "harness/planner/row_allocator.h"
#include "harness/planner/step_time.h"
#include "harness/planner/timeline.h"

namespace kv::planner {

struct Scheduler {
  int64_t step_tokens = 2048;
  int max_running = 256;
  bool swap = false;  // else recomputation
  double watermark = 0.01;
  int64_t share_tokens = 0;  // a unit in which requests with ids share prefixes; 0: they do not
  double limit_ttft_s = 0.0, limit_tpot_s = 0.0;  // a request within both is good; 0: no limit
};

// A request that has arrived and has not ended.
struct Live {
  int64_t request = 0;  // in the order of arrival
  double arrival_s = 0.0, admitted_s = -1.0, first_token_s = -1.0;
  int64_t prompt = 0, output = 0;  // tokens
  int sequence = -1;               // the allocator's number, while it runs
  int64_t rows = 0;                // tokens that are stored
  int64_t target = 0;              // rows that must be there before it decodes
  int64_t generated = 0;
  int64_t swapped = 0;  // rows in the memory beyond the link
  int64_t lost = 0;     // rows that it had before it was preempted
  bool stepped = false;
  int64_t cluster = 0;              // its session, or the minute in which it came
  std::vector<int32_t> units = {};  // whole ones of its prompt, as BlockTree numbers them
  bool shared = false;              // others may begin with them
};

// A test's view of a replay: called between two steps, and once for each request.
struct Watch {
  std::function<void(const std::vector<Live>& running, size_t waiting)> step;
  std::function<void(const Live& request, bool refused)> end;
};

struct ReplayResult {
  int64_t requests = 0, refused = 0, preemptions = 0, recomputed_tokens = 0, swapped_tokens = 0, steps = 0;
  int64_t prompt_tokens = 0, generated_tokens = 0;
  int64_t found_tokens = 0;       // prompt tokens that the prefix cache had at first admission
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

  // The fewest sequences that ran at most for the share `p` of the time in which any did; in percent.
  int64_t running_percentile(double p) const;
  int64_t peak_running() const;
  // Likewise of those that waited.
  int64_t waiting_percentile(double p) const;
  int64_t peak_waiting() const;
};

// `next` gives the requests in the order of arrival; false at the end.
ReplayResult replay(const std::function<bool(io::Request&)>& next, RowAllocator& rows, const StepTime& time,
                    const Scheduler& scheduler, const Watch& watch = {});

}  // namespace kv::planner
