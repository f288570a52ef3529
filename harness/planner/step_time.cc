#include "harness/planner/step_time.h"

#include <algorithm>
#include <utility>

namespace kv::planner {

StepTime::StepTime(const config::Geometry& g, int64_t weights_bytes, const Device& device,
                   std::optional<MeasuredSteps> measured)
    : measured_(std::move(measured)),
      weights_bytes_(static_cast<double>(weights_bytes)),
      flops_per_token_(2.0 * static_cast<double>(g.parameters > 0 ? g.parameters : weights_bytes / 2)),
      flops_per_pair_(2.0 * g.q_heads * (g.head_dim + (g.value_dim > 0 ? g.value_dim : g.head_dim))),
      device_(device) {}

StepSeconds StepTime::parts(const StepWork& work) const {
  StepSeconds parts;
  const int64_t chunks = work.tokens - work.decoding;
  const bool decodes = measured_ && work.decoding > 0, prompts = measured_ && measured_->has_prompts();
  const auto add = [&](const MeasuredSteps::Time& time) {
    (time.beyond ? parts.computed : parts.measured) += time.seconds;
  };
  if (decodes) add(measured_->decode(work.decoding, work.decoded_pairs));
  if (prompts) add(measured_->prompts(chunks, work.pairs, work.decoding == 0));
  // The remaining work. A measured whole step has read the weights already.
  const bool weights_read = decodes && measured_->whole_steps();
  const int64_t tokens = (prompts ? 0 : chunks) + (decodes && measured_->whole_steps() ? 0 : work.decoding);
  const auto longer = [&](double bytes, double flops) {
    return std::max(bytes == 0.0 ? 0.0 : bytes / (device_.read_gbps * 1e9),
                    flops == 0.0 ? 0.0 : flops / device_.flops);
  };
  if (tokens > 0)
    parts.assumed +=
        longer(weights_read ? 0.0 : weights_bytes_, flops_per_token_ * static_cast<double>(tokens));
  const double kv_bytes = (prompts ? 0.0 : work.kv_bytes) + (decodes ? 0.0 : work.decoded_kv_bytes),
               pairs = (prompts ? 0.0 : work.pairs) + (decodes ? 0.0 : work.decoded_pairs);
  parts.assumed += longer(kv_bytes, flops_per_pair_ * pairs);
  if (work.link_bytes > 0.0) parts.assumed += work.link_bytes / (device_.link_gbps * 1e9);
  return parts;
}

}  // namespace kv::planner
