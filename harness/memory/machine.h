// The machine's memory: sizes as the system reports them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace kv::memory {

int64_t total_memory_bytes();
int64_t available_memory_bytes();  // the system's estimate of what a process may still use
// The bytes that the control groups of `membership`, a file like /proc/self/cgroup, leave below `root`, their mount point:
// the least of the process's own group and those around it, version 2 and 1. INT64_MAX without a limit.
int64_t cgroup_available_bytes(const std::filesystem::path& membership, const std::filesystem::path& root);
// Makes the allocator keep large freed blocks, or give them back to the system, so that each large allocation is new pages, zeroed
// and faulted in one by one. Blocks kept so far go back. Only glibc can; elsewhere nothing happens.
void keep_freed_memory(bool keep);
int64_t peak_rss_bytes();  // this process's
// Bytes that devices have delivered for this process's reads, without those from the page cache. Empty if the system does not
// say.
std::optional<int64_t> device_read_bytes();
int64_t cache_bytes(int level);    // a data cache of one core; 0 where the system does not say
int64_t last_level_cache_bytes();  // 32 MiB where the system does not say

// The value after "key:" on the first line of a /proc file that has it; empty where there is none.
std::string proc_value(const char* path, const std::string& key);

}  // namespace kv::memory
