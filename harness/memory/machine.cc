#include "harness/memory/machine.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

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

// Reads Linux's form ("32768K"). glibc's sysconf divides CPUID's size by thread counts that virtual machines invent,
// and can be ten times off.
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

namespace {

namespace fs = std::filesystem;

// File names in a control group, by version.
struct GroupFiles {
  const char *limit, *use, *reclaimable;
};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", "inactive_file"},
    kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};

// File pages that can be dropped count as used but are available.
int64_t reclaimable_bytes(const fs::path& group, const GroupFiles& files) {
  std::ifstream statistics(group / "memory.stat");
  std::string name;
  for (int64_t bytes = 0; statistics >> name >> bytes;) {
    if (name == files.reclaimable) return bytes;
  }
  return 0;
}

int64_t group_available_bytes(const fs::path& group, const GroupFiles& files) {
  int64_t limit = 0, use = 0;  // the limit is no number ("max") if there is none
  if (!(std::ifstream(group / files.limit) >> limit) || !(std::ifstream(group / files.use) >> use))
    return INT64_MAX;
  return std::max<int64_t>(0, limit - std::max<int64_t>(0, use - reclaimable_bytes(group, files)));
}

// The least that a group and its parents leave, up to the root. In a container the path may be the host's, which does
// not exist there.
int64_t least_available_bytes(const fs::path& root, fs::path path, const GroupFiles& files) {
  int64_t least = INT64_MAX;
  for (path = path.relative_path();; path = path.parent_path()) {
    least = std::min(least, group_available_bytes(root / path, files));
    if (path.empty()) return least;
  }
}

}  // namespace

// A line is "0::/path" in version 2, "4:memory:/path" or "4:cpu,memory:/path" in version 1.
int64_t cgroup_available_bytes(const fs::path& membership, const fs::path& root) {
  int64_t least = INT64_MAX;
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") least = std::min(least, least_available_bytes(root, path, kVersion2));
    if (controllers.find(",memory,") != std::string::npos)
      least = std::min(least, least_available_bytes(root / "memory", path, kVersion1));
  }
  return least;
}

int64_t available_memory_bytes() {
  const std::string kib = proc_value("/proc/meminfo", "MemAvailable");
  const int64_t available = kib.empty() ? total_memory_bytes() : std::stoll(kib) * 1024;
  // A container may have less than the machine.
  return std::min(available, cgroup_available_bytes("/proc/self/cgroup", "/sys/fs/cgroup"));
}

std::optional<int64_t> device_read_bytes() {
  const std::string bytes = proc_value("/proc/self/io", "read_bytes");
  return bytes.empty() ? std::optional<int64_t>() : std::stoll(bytes);
}

void keep_freed_memory([[maybe_unused]] bool keep) {
#ifdef __GLIBC__
  const int from =
      keep ? std::numeric_limits<int>::max() : 128 * 1024;  // bytes; the latter is glibc's default
  mallopt(M_MMAP_THRESHOLD, from);
  mallopt(M_TRIM_THRESHOLD, from);
  malloc_trim(0);
#endif
}

int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * int64_t{1024};
}

}  // namespace kv::memory
