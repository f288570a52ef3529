#include "harness/environment.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "harness/device.h"
#include "harness/version.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/gpu.h"

namespace kv {
namespace {

// The value after "key:" on the first line of a /proc file that has it; empty where there is none.
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

// A data cache of one core, as Linux describes it ("32768K"), else 0. glibc's sysconf divides what CPUID says
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

int64_t memory_bytes() { return sysconf(_SC_PHYS_PAGES) * static_cast<int64_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

int64_t last_level_cache_bytes() {
  for (const int level : {3, 2}) {
    if (const int64_t bytes = cache_bytes(level)) return bytes;
  }
  return int64_t{32} << 20;
}

int64_t available_memory_bytes() {
  const std::string kib = proc_value("/proc/meminfo", "MemAvailable");
  int64_t available = kib.empty() ? memory_bytes() : std::stoll(kib) * 1024;
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

nlohmann::json describe_device() {
  if (!device_gpu()) return {{"name", "cpu"}};
  const cuda::GpuInfo info = device_gpu()->info();
  return {{"name", info.name},
          {"compute_capability", std::to_string(info.major) + "." + std::to_string(info.minor)},
          {"multiprocessors", info.multiprocessors},
          {"memory_bytes", info.memory_bytes},
          {"l2_bytes", info.l2_bytes},
          {"driver", info.driver},
          {"runtime", info.runtime}};
}

nlohmann::json describe_environment() {
  utsname os{};
  uname(&os);
  return {
      {"kvlab", {{"version", kVersion}, {"git_commit", kGitCommit}, {"git_dirty", kGitDirty}}},
      {"compiler", kCompiler},
      {"flags", kCompileFlags},
      {"cpu",
       {{"model", proc_value("/proc/cpuinfo", "model name")},
        {"cores", std::thread::hardware_concurrency()},
        {"features", proc_value("/proc/cpuinfo", "flags")},
        {"l2_bytes", cache_bytes(2)},
        {"l3_bytes", cache_bytes(3)}}},
      {"isa", std::string(active_isa())},
      {"isas", available_isas()},
      {"os", std::string(os.sysname) + " " + os.release + " " + os.machine},
      {"memory_bytes", memory_bytes()},
  };
}

}  // namespace kv
