// Memory of a GPU, or of the shim.
#pragma once

#include <utility>
#include <vector>

#include "kernels/cuda/gpu.h"

namespace kv::gpu_check {

// Owns device memory.
class DeviceBytes {
 public:
  DeviceBytes() = default;
  DeviceBytes(cuda::Gpu& gpu, size_t bytes)
      : gpu_(&gpu), data_(bytes ? gpu.allocate(bytes, kPlace) : nullptr) {}
  DeviceBytes(DeviceBytes&& other) noexcept : gpu_(other.gpu_), data_(std::exchange(other.data_, nullptr)) {}
  DeviceBytes& operator=(DeviceBytes&& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~DeviceBytes() {
    if (data_) gpu_->release(data_, kPlace);
  }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  static constexpr auto kPlace = cuda::Gpu::Place::kDevice;
  cuda::Gpu* gpu_ = nullptr;
  std::byte* data_ = nullptr;
};

template <class T>
DeviceBytes upload(cuda::Gpu& gpu, const std::vector<T>& values) {
  DeviceBytes bytes(gpu, values.size() * sizeof(T));
  if (!values.empty()) gpu.copy(bytes.as<T>(), values.data(), values.size() * sizeof(T));
  return bytes;
}

template <class T>
std::vector<T> download(cuda::Gpu& gpu, const T* from, size_t count) {
  std::vector<T> to(count);
  if (count > 0) gpu.copy(to.data(), from, count * sizeof(T));
  return to;
}

}  // namespace kv::gpu_check
