// The machine, the build and the clock of a run, for env.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace kv::cuda {
class Gpu;
}

namespace kv::measure {

// This machine's host name.
std::string host_name();
// kvlab, compiler, flags, cpu, os and memory. Nothing here depends on a config.
nlohmann::json describe_environment();
// Describes the device that holds the caches.
nlohmann::json describe_device(const cuda::Gpu* gpu);  // null: the CPU

}  // namespace kv::measure
