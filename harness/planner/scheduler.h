// Continuous batching with chunked prefill: decides step by step which tokens of which sequences are computed, and keeps
// their rows in a RowAllocator. Who drives it says what time it is: a simulated clock, or steps of a real model.
//
// Each step has a budget of tokens. Running sequences decode first, in the order of arrival; what is left goes to
// chunks of prompts, running ones before waiting ones (Sarathi-Serve, arXiv:2403.02310). First come, first served: no
// request overtakes another. A request is admitted if there is room for its first chunk and a watermark of the pool is
// left. A decode that finds no room preempts the youngest sequence: its rows are dropped and computed again
// (vLLM's recomputation), or moved over the link and back (swap). A request that would not fit alone is refused when
// it arrives. A sequence's last token is never stored, as nobody reads it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "harness/planner/prefix_sharing.h"
#include "harness/planner/row_allocator.h"

namespace kv::planner {

struct SchedulerSettings {
  int64_t step_tokens = 2048;
  int max_running = 256;
  bool swap = false;  // else recomputation
  double watermark = 0.01;
  int64_t share_tokens = 0;  // a unit in which requests with ids share prefixes; 0: they do not
  // Static batches in place of continuous ones: as many as have room begin together, prompts padded to the longest, and
  // keep their rows until all have ended.
  bool lockstep = false;
  double limit_ttft_s = 0.0, limit_tpot_s = 0.0;  // a request within both is good; 0: no limit
};

inline constexpr const char* kSwapNeedsLink = "moves rows over a link: give link_gbps in device";

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
  bool ended = false;               // in lockstep: it waits for the others
  int64_t cluster = 0;              // its session, or the minute in which it came
  std::vector<int32_t> units = {};  // whole ones of its prompt, as BlockTree numbers them
  bool shared = false;              // others may begin with them
};

// A step: tokens [from, from + tokens) of each of these sequences are computed and stored.
struct StepPlan {
  struct Entry {
    int64_t request;
    int sequence;
    int64_t from, tokens;
    bool decodes;  // the token that it chose last; else a chunk of a prompt
    bool chooses;  // the sequence's next token; else more of the prompt comes
  };
  std::vector<Entry> entries;
  int64_t padding = 0;      // tokens of nobody, which lockstep computes
  double link_bytes = 0.0;  // rows that are swapped
  bool empty() const { return entries.empty() && link_bytes == 0.0; }
};

// Real rows beside those of the allocator: told of every change to a sequence, in order, when the allocator has made it.
class RowsMirror {
 public:
  virtual ~RowsMirror() = default;
  // The sequence begins, with so many tokens that the prefix cache has.
  virtual void open(const Live& live, int64_t found) = 0;
  // All rows of its prompt's units are there: others may begin with them.
  virtual void share(const Live& live) = 0;
  virtual void close(const Live& live) = 0;
  virtual void evict(int64_t units) = 0;
};

class Scheduler {
 public:
  // Called once for each request: its last token is there, or it is refused.
  using End = std::function<void(const Live& request, bool refused)>;
  // `mirror` may be null. Throws std::invalid_argument where prefixes cannot be shared as the settings ask.
  Scheduler(RowAllocator& rows, const SchedulerSettings& settings, End end, RowsMirror* mirror = nullptr);

  // A request that has arrived, after all before it. One that would not fit alone is refused.
  void add(Live request);
  bool idle() const { return running_.empty() && waiting_.empty(); }
  // The next step. An empty one where there was no room: the youngest has made some, or was refused.
  const StepPlan& plan(double now_s);
  // The planned step is done: records its tokens and ends requests that are done.
  void finish(double now_s);

  const std::vector<Live>& running() const { return running_; }  // in the order of arrival
  const std::deque<Live>& waiting() const {
    return waiting_;
  }  // likewise, and all younger than those that run

  struct Counts {
    int64_t preemptions = 0, recomputed_tokens = 0, swapped_tokens = 0;
    int64_t found_tokens = 0;  // prompt tokens that the prefix cache had at first admission
  };
  const Counts& counts() const { return counts_; }

 private:
  void decode();
  void prefill();
  void admit(double now_s);
  bool grow(int sequence, int64_t tokens);
  int64_t open(const Live& live);
  void store(Live& live, int64_t tokens, bool decodes = false);
  void preempt();
  void unblock();
  void release(Live& live);
  void pad();

  RowAllocator& rows_;
  const SchedulerSettings settings_;
  const End end_;
  RowsMirror* const mirror_;
  std::optional<PrefixSharing> sharing_;
  std::vector<Live> running_;
  std::deque<Live> waiting_;
  std::vector<int> free_;  // numbers of sequences
  StepPlan plan_;
  int64_t left_ = 0;  // tokens of the step's budget
  Counts counts_;
};

}  // namespace kv::planner
