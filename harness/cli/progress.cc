#include "harness/cli/progress.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "harness/io/text.h"

namespace kv::cli {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string clock_text(double seconds) {
  const int s = static_cast<int>(seconds + 0.5);
  return io::formatted("%d:%02d", s / 60, s % 60);
}

std::string percent_of_run(double share) { return io::formatted(", %.0f %% of the run", 100.0 * share); }

}  // namespace

Progress::Progress(bool quiet)
    : terminal_(isatty(STDERR_FILENO) != 0), quiet_(quiet), started_(now_seconds()) {}

void Progress::update(int done, int total, const std::string& what, double weight_done, double weight_total) {
  if (quiet_) return;
  // Work of an earlier run does not count towards this run's speed.
  if (weight_at_start_ < 0.0) weight_at_start_ = weight_done;
  const double now = now_seconds(), elapsed = now - started_, own = weight_done - weight_at_start_;
  constexpr double kBarSeconds = 0.2, kLineSeconds = 30.0;
  if (done == point_ && now - shown_ < (terminal_ ? kBarSeconds : kLineSeconds)) return;
  const bool goes_on = done == point_;
  point_ = done;
  shown_ = now;
  const std::string left =
      own > 0.0 ? ", about " + clock_text(elapsed / own * (weight_total - weight_done)) + " left" : "";
  if (!terminal_) {
    const std::string share = goes_on ? percent_of_run(weight_done / weight_total) : "";
    std::fprintf(stderr, "[%d/%d] %s%s%s\n", done + 1, total, what.c_str(), share.c_str(), left.c_str());
    return;
  }
  constexpr int kWidth = 24;
  const int filled = static_cast<int>(kWidth * weight_done / weight_total);
  std::string bar;
  for (int i = 0; i < kWidth; ++i) bar += i < filled ? "█" : "░";
  std::fprintf(stderr, "\r\033[K%s %d/%d  %s%s", bar.c_str(), done + 1, total, what.c_str(), left.c_str());
  std::fflush(stderr);
  bar_shown_ = true;
}

void Progress::clear() {
  if (bar_shown_) std::fprintf(stderr, "\r\033[K");
  bar_shown_ = false;
}

void Progress::note(const std::string& line) {
  clear();
  std::fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace kv::cli
