// Refuses what a GPU or its driver cannot do with clearer messages than CUDA's. Host code without CUDA's headers.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace kv::cuda {

// The reason why no GPU can be used, given the runtime's `error`. Versions are CUDA's numbers: 12040 is 12.4; a `driver` of 0 is
// none.
inline std::string why_no_gpu(int driver, int runtime, const std::string& error) {
  const auto name = [](int cuda) {
    return std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10);
  };
  if (driver > 0 && driver < runtime) {
    return "the NVIDIA driver here is of CUDA " + name(driver) + ", older than this build's CUDA " +
           name(runtime) +
           "; leave --device at cpu, update the driver, or build with an older CUDA toolkit (12.4 or newer)";
  }
  return "no GPU can be used here: " + error + "; leave --device at cpu, or install NVIDIA's driver";
}

// Refuses a grid whose second or third side is too large: (sequence, KV head) pairs, splits.
inline void check_grid(int64_t y, int64_t z = 1) {
  constexpr int64_t kMost = 65535;
  if (y <= kMost && z <= kMost) return;
  const bool pairs = y > kMost;
  throw std::invalid_argument("a GPU takes at most " + std::to_string(kMost) +
                              (pairs ? " (sequence, kv head) pairs" : " splits") + " at once, and here are " +
                              std::to_string(pairs ? y : z) + "; use " +
                              (pairs ? "a smaller batch" : "shorter sequences"));
}

}  // namespace kv::cuda
