#include "harness/planner/timeline.h"

#include <algorithm>

namespace kv::planner {
namespace {

void add_times(Moment& sum, const Moment& moment, double times) {
  for (double Moment::*of : {&Moment::running, &Moment::waiting, &Moment::payload_bytes, &Moment::slack_bytes,
                             &Moment::other_bytes, &Moment::cached_bytes})
    sum.*of += times * moment.*of;
}

}  // namespace

void Timeline::add(double begin_s, double seconds, const Moment& moment) {
  end_s_ = begin_s + seconds;
  lasted_s_ += seconds;
  add_times(all_, moment, seconds);
  while (end_s_ >= bin_s_ * static_cast<double>(kMostBins)) {
    for (size_t i = 0; i < sums_.size(); ++i) {
      const Moment sum = sums_[i];
      sums_[i] = {};
      add_times(sums_[i / 2], sum, 1.0);
    }
    sums_.resize((sums_.size() + 1) / 2);
    bin_s_ *= 2;
  }
  for (auto bin = static_cast<size_t>(begin_s / bin_s_); begin_s < end_s_; ++bin) {
    if (bin >= sums_.size()) sums_.resize(bin + 1);
    const double until = std::min(end_s_, static_cast<double>(bin + 1) * bin_s_);
    if (until > begin_s) add_times(sums_[bin], moment, until - begin_s);
    begin_s = std::max(begin_s, until);
  }
}

Moment Timeline::mean_of_steps() const {
  Moment mean;
  if (lasted_s_ > 0.0) add_times(mean, all_, 1.0 / lasted_s_);
  return mean;
}

std::vector<Moment> Timeline::bins() const {
  std::vector<Moment> means(sums_.size());
  for (size_t i = 0; i < sums_.size(); ++i) {
    const double seconds = std::min(bin_s_, end_s_ - static_cast<double>(i) * bin_s_);
    if (seconds > 0.0) add_times(means[i], sums_[i], 1.0 / seconds);
  }
  return means;
}

}  // namespace kv::planner
