// Divides a model's time: a scope in which the parts of its steps are timed and the weights that they read counted,
// whichever forward pass it is.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace kv::model {

enum class Part { kProjections, kAppend, kView, kAttend, kState };
inline constexpr size_t kParts = 5;

class StepParts {
 public:
  // Times all steps of this thread until it is destroyed. One inside another hides it.
  StepParts();
  ~StepParts();
  StepParts(const StepParts&) = delete;
  StepParts& operator=(const StepParts&) = delete;

  double seconds(Part part) const { return seconds_[static_cast<size_t>(part)]; }
  int64_t weight_bytes() const { return weight_bytes_; }    // read by products
  int64_t multiply_adds() const { return multiply_adds_; }  // of products
  void reset();

  // For those who do the work; without a StepParts they cost nothing.
  class Timing {
   public:
    explicit Timing(Part part);
    ~Timing();
    Timing(const Timing&) = delete;
    Timing& operator=(const Timing&) = delete;

   private:
    StepParts* const of_;
    const Part part_;
    std::chrono::steady_clock::time_point start_;
  };
  static void count_product(int64_t weight_bytes, int64_t multiply_adds);

 private:
  static thread_local StepParts* current_;

  StepParts* const outer_;
  std::array<double, kParts> seconds_{};
  int64_t weight_bytes_ = 0, multiply_adds_ = 0;
};

}  // namespace kv::model
