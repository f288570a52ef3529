#include "harness/planner/trace_replay.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "harness/planner/hit_rate.h"

namespace kv::planner {
namespace {

class Replay {
 public:
  Replay(const std::function<bool(io::Request&)>& next, RowAllocator& rows, const StepDriver& driver,
         const SchedulerSettings& settings, const Watch& watch, RowsMirror* mirror)
      : next_(next),
        rows_(rows),
        driver_(driver),
        settings_(settings),
        watch_(watch),
        scheduler_(
            rows, settings, [this](const Live& live, bool refused) { end(live, refused); }, mirror) {
    result_.running_s.resize(static_cast<size_t>(settings.max_running) + 1);
    if (settings.share_tokens > 0) tree_.emplace(settings.share_tokens);
  }

  ReplayResult run() {
    for (more_ = next_(coming_); more_ || !scheduler_.idle();) {
      if (scheduler_.idle()) now_ = std::max(now_, coming_.arrival_s);
      arrive();
      step();
    }
    result_.seconds = now_;
    if (held_s_ > 0.0) result_.slack_share = 1.0 - payload_s_ / held_s_;
    result_.mean = result_.timeline.mean_of_steps();
    static_cast<Scheduler::Counts&>(result_) = scheduler_.counts();
    return std::move(result_);
  }

 private:
  void arrive() {
    for (; more_ && coming_.arrival_s <= now_; more_ = next_(coming_)) {
      Live request{.request = result_.requests++, .arrival_s = coming_.arrival_s};
      request.prompt = std::max<int64_t>(coming_.prompt_tokens, 1);  // a text begins with a token of its own
      request.output = coming_.output_tokens;
      constexpr double kMinute = 60.0;
      request.cluster =
          coming_.session >= 0 ? coming_.session : static_cast<int64_t>(coming_.arrival_s / kMinute);
      if (tree_) {
        request.units = tree_->nodes(coming_);
        const auto whole = static_cast<size_t>(request.prompt / settings_.share_tokens);
        if (request.units.size() > whole) request.units.resize(whole);
      }
      scheduler_.add(std::move(request));
    }
  }

  void step() {
    const StepPlan& plan = scheduler_.plan(now_);
    if (plan.empty()) return;
    const StepSeconds parts = driver_(plan, work_of(plan, rows_.kept()));
    const double seconds = parts.all();
    result_.times.measured += parts.measured;
    result_.times.computed += parts.computed;
    result_.times.assumed += parts.assumed;
    observe(seconds);
    now_ += seconds;
    scheduler_.finish(now_);
    if (watch_.step) watch_.step(scheduler_.running(), scheduler_.waiting().size());
  }

  void observe(double seconds) {
    const std::vector<Live>& running = scheduler_.running();
    const size_t waiting = scheduler_.waiting().size();
    result_.running_s[running.size()] += seconds;
    if (waiting >= result_.waiting_s.size()) result_.waiting_s.resize(waiting + 1);
    result_.waiting_s[waiting] += seconds;
    ++result_.steps;
    const double cached = rows_.unused_bytes();
    const int64_t held = rows_.held_bytes() - static_cast<int64_t>(cached);
    result_.peak_held_bytes = std::max(result_.peak_held_bytes, held);
    double payload = 0.0, stored = 0.0;
    for (const Live& live : running) {
      payload += rows_.payload_bytes(live.rows);
      stored += rows_.stored_bytes(live.rows);
    }
    held_s_ += static_cast<double>(held) * seconds;
    payload_s_ += (payload - rows_.counted_again_bytes()) * seconds;
    const auto reserved = static_cast<double>(rows_.reserved_bytes());
    stored -= rows_.counted_again_bytes();
    result_.timeline.add(now_, seconds,
                         {.running = static_cast<double>(running.size()),
                          .waiting = static_cast<double>(waiting),
                          .payload_bytes = stored,
                          .slack_bytes = reserved - stored - cached,
                          .other_bytes = static_cast<double>(held) - (reserved - cached),
                          .cached_bytes = cached});
  }

  void end(const Live& live, bool refused) {
    if (refused) {
      result_.refuse(live.cluster);
    } else {
      result_.wait_s.push_back(live.admitted_s - live.arrival_s);
      result_.prompt_tokens += live.prompt;
      result_.add(live.arrival_s, live.first_token_s, now_, live.generated, live.cluster, settings_);
    }
    if (watch_.end) watch_.end(live, refused);
  }

  const std::function<bool(io::Request&)>& next_;
  RowAllocator& rows_;
  const StepDriver& driver_;
  const SchedulerSettings settings_;
  const Watch& watch_;
  io::Request coming_;
  bool more_ = false;
  double now_ = 0.0;
  double held_s_ = 0.0, payload_s_ = 0.0;
  std::optional<BlockTree> tree_;
  ReplayResult result_;
  Scheduler scheduler_;
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

void ReplayResult::refuse(int64_t of_cluster) {
  ++refused;
  good.push_back(0.0);
  good_cluster.push_back(of_cluster);
}

void ReplayResult::add(double arrival_s, double first_s, double last_s, int64_t tokens, int64_t of_cluster,
                       const SchedulerSettings& limits) {
  ttft_s.push_back(first_s - arrival_s);
  cluster.push_back(of_cluster);
  double tpot = 0.0;
  if (tokens > 1) {
    tpot = (last_s - first_s) / static_cast<double>(tokens - 1);
    tpot_s.push_back(tpot);
    tpot_cluster.push_back(of_cluster);
  }
  generated_tokens += tokens;
  const auto within = [](double value, double limit) { return limit == 0.0 || value <= limit; };
  good.push_back(within(ttft_s.back(), limits.limit_ttft_s) && within(tpot, limits.limit_tpot_s) ? 1.0 : 0.0);
  good_cluster.push_back(of_cluster);
}

int64_t ReplayResult::running_percentile(double p) const { return percentile_of(running_s, p); }
int64_t ReplayResult::peak_running() const { return largest_of(running_s); }
int64_t ReplayResult::waiting_percentile(double p) const { return percentile_of(waiting_s, p); }
int64_t ReplayResult::peak_waiting() const { return largest_of(waiting_s); }

StepWork work_of(const StepPlan& plan, std::span<const RowAllocator::Kept> kept) {
  StepWork work{.tokens = plan.padding, .link_bytes = plan.link_bytes};
  for (const StepPlan::Entry& entry : plan.entries) {
    work.tokens += entry.tokens;
    work.decoding += entry.decodes;
    double& kv_bytes = entry.decodes ? work.decoded_kv_bytes : work.kv_bytes;
    double& pairs = entry.decodes ? work.decoded_pairs : work.pairs;
    for (const RowAllocator::Kept& k : kept) {
      const auto layers = static_cast<double>(k.layers);
      kv_bytes +=
          layers * k.row_bytes * static_cast<double>(std::min(entry.from + entry.tokens, k.most_rows));
      // A token reads itself and those before it; over a chunk that grows in a line.
      const double mean = static_cast<double>(entry.from) + static_cast<double>(entry.tokens + 1) / 2;
      pairs += layers * static_cast<double>(entry.tokens) * std::min(mean, static_cast<double>(k.most_rows));
    }
  }
  return work;
}

std::function<bool(io::Request&)> in_turn(std::span<const io::Request> all,
                                          const std::function<bool()>& stop) {
  return [all, stop](io::Request& request) mutable {
    if (all.empty() || (stop && stop())) return false;
    request = all.front();
    all = all.subspan(1);
    return true;
  };
}

ReplayResult replay(const std::function<bool(io::Request&)>& next, RowAllocator& rows,
                    const StepDriver& driver, const SchedulerSettings& settings, const Watch& watch,
                    RowsMirror* mirror) {
  return Replay(next, rows, driver, settings, watch, mirror).run();
}

}  // namespace kv::planner
