// A slot table that a device keeps, as its kernels are given it (kernels/cuda/attention/evict.h).
#pragma once

#include <cstdint>

namespace kv {

struct DeviceScores {
  int32_t* token;  // [budget] of the device
  float* score;    // [budget] of the device
  int32_t budget, recent;
  bool newest_query;  // see EvictionRule
};

}  // namespace kv
