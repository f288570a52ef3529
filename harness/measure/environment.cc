#include "harness/measure/environment.h"

#include <sys/utsname.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "harness/io/hash.h"
#include "harness/memory/machine.h"
#include "harness/model/products.h"
#include "harness/version.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/gpu.h"

namespace kv::measure {

nlohmann::json describe_device(const cuda::Gpu* gpu) {
  if (!gpu) return {{"name", "cpu"}};
  const cuda::GpuInfo info = gpu->info();
  return {{"name", info.name},
          {"compute_capability", std::to_string(info.major) + "." + std::to_string(info.minor)},
          {"multiprocessors", info.multiprocessors},
          {"memory_bytes", info.memory_bytes},
          {"free_bytes", info.free_bytes},
          {"l2_bytes", info.l2_bytes},
          {"driver", info.driver},
          {"runtime", info.runtime}};
}

std::string host_name() {
  utsname os{};
  uname(&os);
  return os.nodename;
}

nlohmann::json describe_environment() {
  utsname os{};
  uname(&os);
  return {
      {"kvlab",
       {{"version", kVersion},
        {"git_commit", kGitCommit},
        {"git_dirty", kGitDirty},
        {"binary", io::hash_text(io::hash_of_file("/proc/self/exe"))}}},
      {"host", host_name()},
      {"compiler", kCompiler},
      {"flags", kCompileFlags},
      {"cpu",
       {{"model", memory::proc_value("/proc/cpuinfo", "model name")},
        {"cores", std::thread::hardware_concurrency()},
        {"features", memory::proc_value("/proc/cpuinfo", "flags")},
        {"l2_bytes", memory::cache_bytes(2)},
        {"l3_bytes", memory::cache_bytes(3)}}},
      {"isa", std::string(cpu::active_isa())},
      {"isas", cpu::available_isas()},
      {"matrix_products", model::product_library()},
      {"os", std::string(os.sysname) + " " + os.release + " " + os.machine},
      {"memory_bytes", memory::total_memory_bytes()},
  };
}

}  // namespace kv::measure
