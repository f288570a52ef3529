#include "harness/planner/scheduler.h"

#include <algorithm>
#include <span>
#include <utility>

namespace kv::planner {

Scheduler::Scheduler(RowAllocator& rows, const SchedulerSettings& settings, End end, RowsMirror* mirror)
    : rows_(rows), settings_(settings), end_(std::move(end)), mirror_(mirror) {
  for (int i = settings.max_running - 1; i >= 0; --i) free_.push_back(i);
  if (settings.share_tokens > 0) sharing_.emplace(rows, settings.share_tokens);
}

void Scheduler::add(Live request) {
  request.target = request.prompt;
  if (rows_.can_ever_hold(request.prompt + std::max<int64_t>(request.output, 1) - 1))
    waiting_.push_back(std::move(request));
  else
    end_(request, true);
}

const StepPlan& Scheduler::plan(double now_s) {
  plan_ = {};
  left_ = settings_.step_tokens;
  const bool begins = running_.empty();
  decode();
  prefill();
  if (begins || !settings_.lockstep) admit(now_s);
  if (settings_.lockstep) pad();
  if (plan_.empty()) unblock();
  return plan_;
}

void Scheduler::decode() {
  for (size_t i = 0; i < running_.size() && left_ > 0; ++i) {
    if (running_[i].rows < running_[i].target || running_[i].ended) continue;
    while (!grow(running_[i].sequence, running_[i].rows + 1)) {
      if (running_.size() == 1) return;  // unblock() has the last word
      preempt();
      if (i == running_.size()) return;
    }
    store(running_[i], 1, true);
  }
}

void Scheduler::prefill() {
  for (Live& live : running_) {
    if (left_ == 0) return;
    if (live.rows >= live.target || live.stepped) continue;
    const int64_t chunk = std::min(left_, live.target - live.rows);
    if (!grow(live.sequence, live.rows + chunk)) return;
    store(live, chunk);
  }
}

// Unused units are evicted before a sequence waits for room.
bool Scheduler::grow(int sequence, int64_t tokens) {
  if (sharing_) {
    const int64_t missing = rows_.missing_units(sequence, tokens);
    sharing_->evict(missing);
    if (mirror_ && missing > 0) mirror_->evict(missing);
  }
  return rows_.grow(sequence, tokens);
}

// How many tokens of it are there already; -1 where there is no room. One token is left to compute.
int64_t Scheduler::open(const Live& live) {
  if (!sharing_) return rows_.open(live.sequence) ? 0 : -1;
  const std::span<const int32_t> units(live.units);
  const auto most = static_cast<size_t>((live.target - 1) / settings_.share_tokens);
  return sharing_->open(live.sequence, units.first(std::min(most, units.size())));
}

void Scheduler::admit(double now_s) {
  while (!waiting_.empty() && left_ > 0 && !free_.empty()) {
    Live& live = waiting_.front();
    const auto rows_after = [&](int64_t found) {
      return live.swapped > 0 ? live.swapped : found + std::min(left_, live.target - found);
    };
    live.sequence = free_.back();
    const int64_t units = sharing_ ? sharing_->units() : 0, found = open(live);
    if (mirror_ && found >= 0) mirror_->open(live, found);
    if (mirror_ && sharing_ && sharing_->units() < units) mirror_->evict(units - sharing_->units());
    if (found < 0) return;
    free_.pop_back();
    const int64_t until = rows_after(found);
    const bool room = running_.empty() || rows_.has_room(until - found, settings_.watermark);
    if (!room || !grow(live.sequence, until)) return release(live);
    if (live.admitted_s < 0.0) {
      live.admitted_s = now_s;
      counts_.found_tokens += found;
    }
    counts_.recomputed_tokens += std::max<int64_t>(0, std::exchange(live.lost, 0) - found);
    live.rows = found;
    if (live.swapped > 0) {
      plan_.link_bytes += rows_.payload_bytes(live.swapped) - rows_.payload_bytes(found);
      live.rows = live.swapped;
      live.swapped = 0;
    } else {
      store(live, until - found);
    }
    running_.push_back(std::move(live));
    waiting_.pop_front();
  }
}

// The next `tokens` of the sequence are computed and stored.
void Scheduler::store(Live& live, int64_t tokens, bool decodes) {
  plan_.entries.push_back(
      {live.request, live.sequence, live.rows, tokens, decodes, live.rows + tokens >= live.target});
  live.rows += tokens;
  live.stepped = true;
  left_ -= tokens;
}

// The youngest gives up its room, and waits before all others that wait.
void Scheduler::preempt() {
  Live live = std::move(running_.back());
  running_.pop_back();
  release(live);
  if (live.ended) return;
  ++counts_.preemptions;
  live.stepped = live.shared = false;
  if (settings_.swap && live.rows >= live.target) {
    live.swapped = live.rows;
    counts_.swapped_tokens += live.rows;
    plan_.link_bytes += rows_.payload_bytes(live.rows);
  } else {
    live.lost = live.rows;
    live.target = live.prompt + live.generated;
  }
  live.rows = 0;
  waiting_.push_front(std::move(live));
}

// Sequences that have ended compute a token each with those that have not; prompts are as long as the longest.
void Scheduler::pad() {
  int64_t longest = 0;
  for (const StepPlan::Entry& entry : plan_.entries) longest = std::max(longest, entry.tokens);
  for (const StepPlan::Entry& entry : plan_.entries) plan_.padding += longest - entry.tokens;
  for (const Live& live : running_) plan_.padding += live.ended;
}

// Nothing could be computed: the youngest sequence makes room. One that has no room alone is refused.
void Scheduler::unblock() {
  if (running_.size() > 1) {
    preempt();
    plan_ = {};
  } else if (!running_.empty()) {
    release(running_.back());
    end_(running_.back(), true);
    running_.pop_back();
  } else if (!waiting_.empty()) {
    end_(waiting_.front(), true);
    waiting_.pop_front();
  }
}

void Scheduler::finish(double now_s) {
  size_t kept = 0;
  bool goes_on = !settings_.lockstep;
  for (Live& live : running_) {
    const bool ready = live.stepped && live.rows >= live.target;
    live.stepped = false;
    if (ready && sharing_ && !live.shared) {
      sharing_->share(live.sequence, live.units);
      live.shared = true;
      if (mirror_) mirror_->share(live);
    }
    if (ready && live.output > 0) ++live.generated;
    if (ready && live.first_token_s < 0.0) live.first_token_s = now_s;
    if (ready && live.generated >= live.output) {
      if (!settings_.lockstep) release(live);
      end_(live, false);
      if (!settings_.lockstep) continue;
      live.ended = true;
    }
    goes_on |= !live.ended;
    if (&running_[kept] != &live) running_[kept] = std::move(live);
    ++kept;
  }
  running_.resize(kept);
  if (goes_on) return;
  for (Live& live : running_) release(live);
  running_.clear();
}

void Scheduler::release(Live& live) {
  if (mirror_) mirror_->close(live);
  sharing_ ? sharing_->close(live.sequence) : rows_.close(live.sequence);
  free_.push_back(live.sequence);
  live.sequence = -1;
}

}  // namespace kv::planner
