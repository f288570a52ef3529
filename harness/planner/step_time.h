// The time of a step on the simulated clock, and its source.
#pragma once

#include <cstdint>
#include <optional>

#include "harness/config/geometry.h"
#include "harness/planner/measured_steps.h"

namespace kv::planner {

struct StepPlan;

// A machine as it is stated; 0 where it is not.
struct Device {
  double read_gbps = 0.0;  // memory's
  double flops = 0.0;      // per second; a multiply-add is two
  double link_gbps = 0.0;  // to the memory that swapping moves rows to
};

// The work of a step. `pairs`: a query and a row that it reads, over all layers. `decoding` and `decoded_*` count tokens
// that decode, one a sequence; the others count chunks of prompts.
struct StepWork {
  int64_t tokens = 0, decoding = 0;
  double kv_bytes = 0.0, pairs = 0.0, link_bytes = 0.0;
  double decoded_kv_bytes = 0.0, decoded_pairs = 0.0;
  friend bool operator==(const StepWork&, const StepWork&) = default;
};

// A step's time by where it comes from: cells of one machine, their lines beyond them, a stated machine.
struct StepSeconds {
  double measured = 0.0, computed = 0.0, assumed = 0.0;
  double all() const { return measured + computed + assumed; }
  // The least sure of its parts: "assumed" before "computed" before "measured".
  const char* from() const { return assumed > 0.0 ? "assumed" : computed > 0.0 ? "computed" : "measured"; }
};

// The roofline of a step on a device: of the weights, then of attention, the bytes that are read or the
// multiply-adds, whichever takes longer; and what goes over the link. Attention reads each sequence's rows once a step.
// A model of unknown size has a parameter for each 2 bytes of its weights.
class StepTime {
 public:
  // With `measured`, tokens that decode take as long as its cells, and prompts where it has them; what these leave out (of
  // cells that are attention alone the weights) is still the device's, as is the link.
  StepTime(const config::Geometry& geometry, int64_t weights_bytes, const Device& device,
           std::optional<MeasuredSteps> measured = {});
  StepSeconds parts(const StepWork& work) const;
  StepSeconds operator()(const StepPlan&, const StepWork& work) const { return parts(work); }
  double seconds(const StepWork& work) const { return parts(work).all(); }

 private:
  std::optional<MeasuredSteps> measured_;
  double weights_bytes_, flops_per_token_, flops_per_pair_;
  Device device_;
};

}  // namespace kv::planner
