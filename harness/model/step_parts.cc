#include "harness/model/step_parts.h"

namespace kv::model {

thread_local StepParts* StepParts::current_ = nullptr;

StepParts::StepParts() : outer_(current_) { current_ = this; }
StepParts::~StepParts() { current_ = outer_; }

void StepParts::reset() {
  seconds_ = {};
  weight_bytes_ = multiply_adds_ = 0;
}

StepParts::Timing::Timing(Part part) : of_(current_), part_(part) {
  if (of_) start_ = std::chrono::steady_clock::now();
}

StepParts::Timing::~Timing() {
  if (!of_) return;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
  of_->seconds_[static_cast<size_t>(part_)] += took.count();
}

void StepParts::count_product(int64_t weight_bytes, int64_t multiply_adds) {
  if (!current_) return;
  current_->weight_bytes_ += weight_bytes;
  current_->multiply_adds_ += multiply_adds;
}

}  // namespace kv::model
