// Numbers in raw bytes, at any address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/host_device.h"

namespace kv {

template <class T>
KV_HD T load(const std::byte* p, int64_t i) {
  T value;
  std::memcpy(&value, p + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
KV_HD void store(std::byte* p, int64_t i, T value) {
  std::memcpy(p + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

}  // namespace kv
