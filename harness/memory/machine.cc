#include "harness/memory/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace kv::memory {

std::string proc_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const size_t colon = line.find(':');
    const size_t start = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

// As Linux describes it ("32768K"). glibc's sysconf divides what CPUID says
// by thread counts that virtual machines make up, and can be ten times off.
int64_t cache_bytes(int level) {
  for (int i = 0; i < 8; ++i) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i) + "/";
    int found = 0;
    std::string type, size;
    std::ifstream(folder + "level") >> found;
    std::ifstream(folder + "type") >> type;
    std::ifstream(folder + "size") >> size;
    if (found != level || type == "Instruction" || size.empty()) continue;
    return std::stoll(size) * (size.back() == 'M' ? 1 << 20 : 1 << 10);
  }
  return 0;
}

int64_t total_memory_bytes() { return sysconf(_SC_PHYS_PAGES) * static_cast<int64_t>(sysconf(_SC_PAGESIZE)); }

int64_t last_level_cache_bytes() {
  for (const int level : {3, 2}) {
    if (const int64_t bytes = cache_bytes(level)) return bytes;
  }
  return int64_t{32} << 20;
}

int64_t available_memory_bytes() {
  const std::string kib = proc_value("/proc/meminfo", "MemAvailable");
  int64_t available = kib.empty() ? total_memory_bytes() : std::stoll(kib) * 1024;
  // A container may have less than the machine: control groups, version 2 and 1.
  const std::string groups[][2] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
  for (const auto& [limit_file, use_file] : groups) {
    int64_t limit = 0, use = 0;  // not a number where there is no limit
    if (std::ifstream(limit_file) >> limit && std::ifstream(use_file) >> use)
      available = std::min(available, std::max<int64_t>(0, limit - use));
  }
  return available;
}

int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * int64_t{1024};
}

}  // namespace kv::memory
