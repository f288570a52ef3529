#include "harness/planner/trace_replay.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <span>
#include <utility>

#include "harness/planner/hit_rate.h"
#include "harness/planner/prefix_sharing.h"

namespace kv::planner {
namespace {

class Replay {
 public:
  Replay(const std::function<bool(io::Request&)>& next, RowAllocator& rows, const StepTime& time,
         const Scheduler& scheduler, const Watch& watch)
      : next_(next), rows_(rows), time_(time), scheduler_(scheduler), watch_(watch) {
    for (int i = scheduler.max_running - 1; i >= 0; --i) free_.push_back(i);
    result_.running_s.resize(static_cast<size_t>(scheduler.max_running) + 1);
    if (scheduler.share_tokens == 0) return;
    sharing_.emplace(rows, scheduler.share_tokens);
    tree_.emplace(scheduler.share_tokens);
  }

  ReplayResult run() {
    for (more_ = next_(coming_); more_ || !waiting_.empty() || !running_.empty();) {
      if (running_.empty() && waiting_.empty()) now_ = std::max(now_, coming_.arrival_s);
      arrive();
      step();
    }
    result_.seconds = now_;
    if (held_s_ > 0.0) result_.slack_share = 1.0 - payload_s_ / held_s_;
    result_.mean = result_.timeline.mean_of_steps();
    return std::move(result_);
  }

 private:
  void arrive() {
    for (; more_ && coming_.arrival_s <= now_; more_ = next_(coming_)) {
      Live request{.request = result_.requests++, .arrival_s = coming_.arrival_s};
      request.prompt = std::max<int64_t>(coming_.prompt_tokens, 1);  // a text begins with a token of its own
      request.output = coming_.output_tokens;
      request.target = request.prompt;
      constexpr double kMinute = 60.0;
      request.cluster =
          coming_.session >= 0 ? coming_.session : static_cast<int64_t>(coming_.arrival_s / kMinute);
      if (sharing_) {
        request.units = tree_->nodes(coming_);
        const auto whole = static_cast<size_t>(request.prompt / scheduler_.share_tokens);
        if (request.units.size() > whole) request.units.resize(whole);
      }
      if (rows_.can_ever_hold(request.prompt + std::max<int64_t>(request.output, 1) - 1))
        waiting_.push_back(std::move(request));
      else
        refuse(request);
    }
  }

  void step() {
    work_ = {};
    left_ = scheduler_.step_tokens;
    decode();
    prefill();
    admit();
    if (work_.tokens == 0 && work_.link_bytes == 0.0) return unblock();
    const StepSeconds parts = time_.parts(work_);
    const double seconds = parts.all();
    result_.times.measured += parts.measured;
    result_.times.computed += parts.computed;
    result_.times.assumed += parts.assumed;
    observe(seconds);
    now_ += seconds;
    finish();
    if (watch_.step) watch_.step(running_, waiting_.size());
  }

  void decode() {
    for (size_t i = 0; i < running_.size() && left_ > 0; ++i) {
      if (running_[i].rows < running_[i].target) continue;
      while (!grow(running_[i].sequence, running_[i].rows + 1)) {
        if (running_.size() == 1) return;  // unblock() has the last word
        preempt();
        if (i == running_.size()) return;
      }
      store(running_[i], 1, true);
    }
  }

  void prefill() {
    for (Live& live : running_) {
      if (left_ == 0) return;
      if (live.rows >= live.target || live.stepped) continue;
      const int64_t chunk = std::min(left_, live.target - live.rows);
      if (!grow(live.sequence, live.rows + chunk)) return;
      store(live, chunk);
    }
  }

  // Unused units are evicted before a sequence waits for room.
  bool grow(int sequence, int64_t tokens) {
    if (sharing_) sharing_->evict(rows_.missing_units(sequence, tokens));
    return rows_.grow(sequence, tokens);
  }

  // How many tokens of it are there already; -1 where there is no room. One token is left to compute.
  int64_t open(const Live& live) {
    if (!sharing_) return rows_.open(live.sequence) ? 0 : -1;
    const std::span<const int32_t> units(live.units);
    const auto most = static_cast<size_t>((live.target - 1) / scheduler_.share_tokens);
    return sharing_->open(live.sequence, units.first(std::min(most, units.size())));
  }

  void close(int sequence) { sharing_ ? sharing_->close(sequence) : rows_.close(sequence); }

  void admit() {
    while (!waiting_.empty() && left_ > 0 && !free_.empty()) {
      Live& live = waiting_.front();
      const auto rows_after = [&](int64_t found) {
        return live.swapped > 0 ? live.swapped : found + std::min(left_, live.target - found);
      };
      live.sequence = free_.back();
      const int64_t found = open(live);
      if (found < 0) return;
      const int64_t until = rows_after(found);
      const bool room = running_.empty() || rows_.has_room(until - found, scheduler_.watermark);
      if (!room || !grow(live.sequence, until)) return close(live.sequence);
      free_.pop_back();
      if (live.admitted_s < 0.0) {
        live.admitted_s = now_;
        result_.found_tokens += found;
      }
      result_.recomputed_tokens += std::max<int64_t>(0, std::exchange(live.lost, 0) - found);
      live.rows = found;
      if (live.swapped > 0) {
        work_.link_bytes += rows_.payload_bytes(live.swapped) - rows_.payload_bytes(found);
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
  void store(Live& live, int64_t tokens, bool decodes = false) {
    const int64_t before = live.rows;
    live.rows += tokens;
    live.stepped = true;
    left_ -= tokens;
    work_.tokens += tokens;
    work_.decoding += decodes;
    double& kv_bytes = decodes ? work_.decoded_kv_bytes : work_.kv_bytes;
    double& pairs = decodes ? work_.decoded_pairs : work_.pairs;
    for (const RowAllocator::Kept& k : rows_.kept()) {
      const auto layers = static_cast<double>(k.layers);
      kv_bytes += layers * k.row_bytes * static_cast<double>(std::min(live.rows, k.most_rows));
      // A token reads itself and those before it; over a chunk that grows in a line.
      const double mean = static_cast<double>(before) + static_cast<double>(tokens + 1) / 2;
      pairs += layers * static_cast<double>(tokens) * std::min(mean, static_cast<double>(k.most_rows));
    }
  }

  // The youngest gives up its room, and waits before all others that wait.
  void preempt() {
    Live live = std::move(running_.back());
    running_.pop_back();
    release(live);
    ++result_.preemptions;
    live.stepped = live.shared = false;
    if (scheduler_.swap && live.rows >= live.target) {
      live.swapped = live.rows;
      result_.swapped_tokens += live.rows;
      work_.link_bytes += rows_.payload_bytes(live.rows);
    } else {
      live.lost = live.rows;
      live.target = live.prompt + live.generated;
    }
    live.rows = 0;
    waiting_.push_front(std::move(live));
  }

  // Nothing could be computed: the youngest sequence makes room. One that has no room alone is refused.
  void unblock() {
    if (running_.size() > 1) return preempt();
    if (!running_.empty()) {
      release(running_.back());
      refuse(running_.back());
      running_.pop_back();
    } else if (!waiting_.empty()) {
      refuse(waiting_.front());
      waiting_.pop_front();
    }
  }

  void observe(double seconds) {
    result_.running_s[running_.size()] += seconds;
    if (waiting_.size() >= result_.waiting_s.size()) result_.waiting_s.resize(waiting_.size() + 1);
    result_.waiting_s[waiting_.size()] += seconds;
    ++result_.steps;
    const double cached = rows_.unused_bytes();
    const int64_t held = rows_.held_bytes() - static_cast<int64_t>(cached);
    result_.peak_held_bytes = std::max(result_.peak_held_bytes, held);
    double payload = 0.0, stored = 0.0;
    for (const Live& live : running_) {
      payload += rows_.payload_bytes(live.rows);
      stored += rows_.stored_bytes(live.rows);
    }
    held_s_ += static_cast<double>(held) * seconds;
    payload_s_ += (payload - rows_.counted_again_bytes()) * seconds;
    const auto reserved = static_cast<double>(rows_.reserved_bytes());
    stored -= rows_.counted_again_bytes();
    result_.timeline.add(now_, seconds,
                         {.running = static_cast<double>(running_.size()),
                          .waiting = static_cast<double>(waiting_.size()),
                          .payload_bytes = stored,
                          .slack_bytes = reserved - stored - cached,
                          .other_bytes = static_cast<double>(held) - (reserved - cached),
                          .cached_bytes = cached});
  }

  // Records the step's tokens and ends sequences that are done.
  void finish() {
    size_t kept = 0;
    for (Live& live : running_) {
      const bool ready = live.stepped && live.rows >= live.target;
      live.stepped = false;
      if (ready && sharing_ && !live.shared) {
        sharing_->share(live.sequence, live.units);
        live.shared = true;
      }
      if (ready && live.output > 0) ++live.generated;
      if (ready && live.first_token_s < 0.0) live.first_token_s = now_;
      if (ready && live.generated >= live.output) {
        end(live);
        continue;
      }
      if (&running_[kept] != &live) running_[kept] = std::move(live);
      ++kept;
    }
    running_.resize(kept);
  }

  void end(Live& live) {
    result_.wait_s.push_back(live.admitted_s - live.arrival_s);
    const double ttft = live.first_token_s - live.arrival_s;
    result_.ttft_s.push_back(ttft);
    result_.cluster.push_back(live.cluster);
    double tpot = 0.0;
    if (live.output > 1) {
      tpot = (now_ - live.first_token_s) / static_cast<double>(live.output - 1);
      result_.tpot_s.push_back(tpot);
      result_.tpot_cluster.push_back(live.cluster);
    }
    const auto within = [](double value, double limit) { return limit == 0.0 || value <= limit; };
    judge(live, within(ttft, scheduler_.limit_ttft_s) && within(tpot, scheduler_.limit_tpot_s));
    result_.prompt_tokens += live.prompt;
    result_.generated_tokens += live.generated;
    release(live);
    if (watch_.end) watch_.end(live, false);
  }

  void judge(const Live& live, bool good) {
    result_.good.push_back(good ? 1.0 : 0.0);
    result_.good_cluster.push_back(live.cluster);
  }

  void refuse(const Live& live) {
    ++result_.refused;
    judge(live, false);
    if (watch_.end) watch_.end(live, true);
  }

  void release(Live& live) {
    close(live.sequence);
    free_.push_back(live.sequence);
    live.sequence = -1;
  }

  const std::function<bool(io::Request&)>& next_;
  RowAllocator& rows_;
  const StepTime& time_;
  const Scheduler scheduler_;
  const Watch& watch_;
  io::Request coming_;
  bool more_ = false;
  double now_ = 0.0;
  std::vector<Live> running_;  // in the order of arrival
  std::deque<Live> waiting_;   // likewise, and all younger than those that run
  std::vector<int> free_;      // numbers of sequences
  StepWork work_;
  int64_t left_ = 0;  // tokens of the step's budget
  double held_s_ = 0.0, payload_s_ = 0.0;
  std::optional<PrefixSharing> sharing_;
  std::optional<BlockTree> tree_;
  ReplayResult result_;
};

// The largest number; number i was there for seconds[i].
int64_t largest_of(const std::vector<double>& seconds) {
  for (size_t n = seconds.size(); n-- > 0;)
    if (seconds[n] > 0.0) return static_cast<int64_t>(n);
  return 0;
}

int64_t percentile_of(const std::vector<double>& seconds, double p) {
  double all = 0.0, below = 0.0;
  for (const double s : seconds) all += s;
  for (size_t n = 0; n < seconds.size(); ++n) {
    below += seconds[n];
    if (below >= all * p / 100.0) return static_cast<int64_t>(n);
  }
  return largest_of(seconds);
}

}  // namespace

int64_t ReplayResult::running_percentile(double p) const { return percentile_of(running_s, p); }
int64_t ReplayResult::peak_running() const { return largest_of(running_s); }
int64_t ReplayResult::waiting_percentile(double p) const { return percentile_of(waiting_s, p); }
int64_t ReplayResult::peak_waiting() const { return largest_of(waiting_s); }

ReplayResult replay(const std::function<bool(io::Request&)>& next, RowAllocator& rows, const StepTime& time,
                    const Scheduler& scheduler, const Watch& watch) {
  return Replay(next, rows, time, scheduler, watch).run();
}

}  // namespace kv::planner
