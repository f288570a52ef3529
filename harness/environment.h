// What ran: the machine, the build and the clock, as env.json records it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace kv {

// kvlab, compiler, flags, cpu, os and memory. Nothing here depends on a config.
nlohmann::json describe_environment();
// The device that caches live on.
nlohmann::json describe_device();

int64_t last_level_cache_bytes();  // 32 MiB where the system does not say
int64_t available_memory_bytes();  // what the system thinks a process may still use
int64_t peak_rss_bytes();          // of this process

}  // namespace kv
