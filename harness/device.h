// Which device caches live on: the CPU ("cpu") or a GPU ("cuda"). One for the whole process, chosen before
// the first cache is made.
#pragma once

#include <string>
#include <string_view>

namespace kv {

namespace cuda {
class Gpu;
}

// Throws std::invalid_argument with one line if there is no such device here.
void use_device(std::string_view name);
std::string device_name();  // "cpu", or the GPU's own name
cuda::Gpu* device_gpu();    // null for the CPU

}  // namespace kv
