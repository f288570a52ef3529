// What ran: the machine, the build and the clock, as env.json records it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace kv::cuda {
class Gpu;
}

namespace kv::measure {

// This machine's name, as the system has it.
std::string host_name();
// kvlab, compiler, flags, cpu, os and memory. Nothing here depends on a config.
nlohmann::json describe_environment();
// The device that caches live on.
nlohmann::json describe_device(const cuda::Gpu* gpu);  // null: the CPU

}  // namespace kv::measure
