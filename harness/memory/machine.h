// The machine's memory sizes, as the system reports them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace kv::memory {

int64_t total_memory_bytes();
int64_t available_memory_bytes();  // the system's estimate for this process
// Bytes that control groups leave the process: the least of its own group and those around it, version 2 and 1.
// `membership`: a file like /proc/self/cgroup; `root`: the groups' mount point. INT64_MAX without a limit.
int64_t cgroup_available_bytes(const std::filesystem::path& membership, const std::filesystem::path& root);
// Makes the allocator keep large freed blocks, or return them to the system: each large allocation is then new pages,
// zeroed and faulted in one by one. Kept blocks are returned first. Only glibc can; elsewhere nothing happens.
void keep_freed_memory(bool keep);
int64_t peak_rss_bytes();  // this process's
// Bytes that devices delivered for this process's reads, page cache excluded. Empty if the system does not report
// them.
std::optional<int64_t> device_read_bytes();
int64_t cache_bytes(int level);    // a data cache of one core; 0 if unknown
int64_t last_level_cache_bytes();  // 32 MiB if unknown

// The value after "key:" on the first such line of a /proc file; empty if there is none.
std::string proc_value(const char* path, const std::string& key);

}  // namespace kv::memory
