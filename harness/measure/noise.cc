#include "harness/measure/noise.h"
#include "harness/measure/time_columns.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace kv::measure {
namespace {

constexpr const char* kStat = "/proc/stat";

double own_cpu_seconds() {
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  double all = 0;
  for (const auto whose : {RUSAGE_SELF, RUSAGE_CHILDREN}) {  // peers have ended when a point's cells have
    rusage usage{};
    getrusage(whose, &usage);
    all += seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  return all;
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f %%", 100 * share);
  return text;
}

void add(std::string& text, const std::string& more) { text += (text.empty() ? "" : "; ") + more; }

void add_interval(std::string& text, const char* of, const results::Number& low,
                  const results::Number& high) {
  if (low && high && *high > kWidestInterval * *low) {
    char ratio[32];
    std::snprintf(ratio, sizeof ratio, "%.1f", *high / *low);
    add(text, std::string(of) + " interval is wide: its upper end is " + ratio + " times its lower end");
  }
}

}  // namespace

std::optional<CpuTime> cpu_time(const std::filesystem::path& stat) {
  std::ifstream file(stat);
  std::string cpu;
  // Fields: user nice system idle iowait irq softirq steal; user already includes guests' time.
  int64_t field[8] = {};
  file >> cpu;
  for (int64_t& f : field) file >> f;
  if (!file || cpu != "cpu") return std::nullopt;
  CpuTime time{.idle = field[3] + field[4], .stolen = field[7]};
  for (const int64_t f : field) time.total += f;
  return time;
}

WaitMeter::WaitMeter(const std::filesystem::path& tasks) {
  std::error_code none;
  for (const auto& task : std::filesystem::directory_iterator(tasks, none)) {
    const int file = open((task.path() / "schedstat").c_str(), O_RDONLY | O_CLOEXEC);
    if (file >= 0) files_.push_back(file);
  }
}

WaitMeter::~WaitMeter() {
  for (const int file : files_) close(file);
}

double WaitMeter::seconds() const {
  int64_t nanoseconds = 0;
  for (const int file : files_) {
    char text[96];
    const ssize_t n = pread(file, text, sizeof text - 1, 0);
    if (n <= 0) continue;  // the thread has ended
    text[n] = '\0';
    char* rest = nullptr;
    std::strtoll(text, &rest, 10);
    nanoseconds += std::strtoll(rest, nullptr, 10);
  }
  return 1e-9 * static_cast<double>(nanoseconds);
}

void require_fine_clock() {
  using Clock = std::chrono::steady_clock;
  using Microseconds = std::chrono::duration<double, std::micro>;
  constexpr Microseconds kCoarsest{10};
  Microseconds least = Microseconds::max();
  for (int i = 0; i < 5; ++i) {  // another process may come between two readings
    const auto before = Clock::now();
    auto after = before;
    while (after == before) after = Clock::now();
    least = std::min<Microseconds>(least, after - before);
  }
  if (least > kCoarsest)
    throw std::invalid_argument("the clock moves in steps of " + std::to_string(std::llround(least.count())) +
                                " us; times need one of at most 10 us (see "
                                "/sys/devices/system/clocksource/clocksource0/current_clocksource)");
}

NoiseMeter::NoiseMeter() : start_(cpu_time(kStat)), own_seconds_(own_cpu_seconds()) {}

results::Number NoiseMeter::steal_share() const {
  const std::optional<CpuTime> now = cpu_time(kStat);
  if (!start_ || !now || now->total <= start_->total) return {};
  return static_cast<double>(now->stolen - start_->stolen) / static_cast<double>(now->total - start_->total);
}

results::Number NoiseMeter::others_share() const {
  const std::optional<CpuTime> now = cpu_time(kStat);
  if (!start_ || !now || now->total <= start_->total) return {};
  const auto busy = [](const CpuTime& t) { return t.total - t.idle - t.stolen; };
  const double own = (own_cpu_seconds() - own_seconds_) * static_cast<double>(sysconf(_SC_CLK_TCK));
  const double others = static_cast<double>(busy(*now) - busy(*start_)) - own;
  // Ticks are coarser than the process's own clock.
  return std::max(0.0, others / static_cast<double>(now->total - start_->total));
}

std::string noise_of(const results::Row& row) {
  if (!row[kStepP50Us] && !row[kPrefillP50Us]) return "";
  std::string text;
  if (row[kStealShare] && *row[kStealShare] > kMostStealShare)
    add(text, "the hypervisor took " + percent(*row[kStealShare]) + " of the processors");
  // Other processes disturb only those steps that had to wait for them, where that is known.
  if (row[kDisturbedShare] && *row[kDisturbedShare] > kMostDisturbedShare)
    add(text, "other processes delayed " + percent(*row[kDisturbedShare]) + " of the steps");
  if (!row[kDisturbedShare] && row[kOthersShare] && *row[kOthersShare] > kMostOthersShare)
    add(text, "other processes took " + percent(*row[kOthersShare]) + " of the processors");
  add_interval(text, "the step's", row[kStepP50Us.low], row[kStepP50Us.high]);
  add_interval(text, "the prompt's", row[kPrefillP50Us.low], row[kPrefillP50Us.high]);
  if (row[kColdCeilingShare] && *row[kColdCeilingShare] > kMostCeilingShare)
    add(text, "cold reads reached " + percent(*row[kColdCeilingShare]) + " of measured read bandwidth");
  return text;
}

bool differs_from_itself(const results::Row& row) {
  return results::is_aa_test(row) && row[kRatioP50.low] && row[kRatioP50.high] &&
         (*row[kRatioP50.low] > 1.0 || *row[kRatioP50.high] < 1.0);
}

void withhold_verdicts(std::span<results::Row* const> point) {
  for (results::Row* row : point) {
    const std::string& versus = (*row)[results::kVersus];
    const auto casts_doubt = [&](const results::Row* other) {
      if (differs_from_itself(*other)) return (*other)[results::kVersus] == versus;
      // In prefill each variant has a baseline of its own, an arm.
      return (*other)[results::kVerdict] == "baseline" && !(*other)[kNoise].empty() &&
             ((*other)[results::kVariant] == versus ||
              ((*other)[results::kArm] == versus &&
               (*other)[results::kVariant] == (*row)[results::kVariant]));
    };
    if ((*row)[kRatioP50] && !results::is_aa_test(*row) && (*row)[results::kVerdict] != "baseline" &&
        std::ranges::any_of(point, casts_doubt))
      (*row)[results::kVerdict] = results::kUnreliable;
  }
}

bool mark_noise(std::span<results::Row> rows, const NoiseMeter& meter) {
  const results::Number steal = meter.steal_share(), others = meter.others_share();
  bool noisy = false;
  for (results::Row& row : rows) {
    if (!row[kStepP50Us] && !row[kPrefillP50Us]) continue;
    row[kStealShare] = steal;
    row[kOthersShare] = others;
    row[kNoise] = noise_of(row);
    noisy |= !row[kNoise].empty();
  }
  std::vector<results::Row*> point;
  for (results::Row& row : rows) point.push_back(&row);
  withhold_verdicts(point);
  return noisy;
}

}  // namespace kv::measure
