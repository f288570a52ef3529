#include "harness/measure/weights_bandwidth.h"

#include <omp.h>

#include <algorithm>

namespace kv::measure {

WeightsBandwidthTask::WeightsBandwidthTask(const model::ModelWeights& weights) {
  constexpr int64_t kPieceBytes = 64 << 10;  // length of a stretch, so that threads share them evenly
  for (const model::WeightMatrix* m : weights.products()) {
    for (int64_t from = 0; from < m->bytes(); from += kPieceBytes)
      stretches_.push_back({m->data() + from, static_cast<size_t>(std::min(kPieceBytes, m->bytes() - from))});
    bytes_ += m->bytes();
  }
}

// About ten milliseconds.
int WeightsBandwidthTask::iterations() const {
  return static_cast<int>(std::clamp<int64_t>((128 << 20) / std::max<int64_t>(1, bytes_), 2, 100));
}

void WeightsBandwidthTask::begin(int) {
  parts_ = cpu::share_out(stretches_, static_cast<size_t>(omp_get_max_threads()));
  reads_.warm_up([&] { return cpu::read_stretches(parts_); });
}

double WeightsBandwidthTask::run() {
  return reads_.run_in_turn(bytes_, [&](cpu::ReadOrder order) { return cpu::read_stretches(parts_, order); });
}

}  // namespace kv::measure
