// The machine of a run: the device that holds the caches, the CPU kernels' instruction set, and the threads. Code
// that builds caches takes it as an argument.
#pragma once

#include <memory>
#include <string_view>

namespace kv::cuda {
class Gpu;
}

namespace kv::memory {

class RunContext {
 public:
  // `device`: "cpu" or "cuda". `isa`: a name of available_isas(), or "auto" for the best. `threads`: 0 for one a
  // core; never more than most_threads(). The kernels hold their instruction set themselves, so the newest context decides it. Throws
  // std::invalid_argument with one line if this machine lacks any of them.
  explicit RunContext(std::string_view device = "cpu", std::string_view isa = "auto", int threads = 0);
  // Uses this GPU instead of opening one.
  explicit RunContext(std::unique_ptr<cuda::Gpu> gpu);
  ~RunContext();
  RunContext(const RunContext&) = delete;
  RunContext& operator=(const RunContext&) = delete;

  cuda::Gpu* gpu() const { return gpu_.get(); }  // null on the CPU; lives as long as this object
  const char* device() const { return gpu_ ? "cuda" : "cpu"; }
  int threads() const { return threads_; }

 private:
  std::unique_ptr<cuda::Gpu> gpu_;
  int threads_;
};

// Throws std::invalid_argument if a thread's stack is too small for the kernels, as after `ulimit -s 512`.
void require_stack();

// The most threads that OpenMP gives this process (OMP_THREAD_LIMIT).
int most_threads();

// Sets the number of OpenMP threads for its lifetime.
class ThreadCount {
 public:
  explicit ThreadCount(int threads);
  ~ThreadCount();
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  const int before_;
};

}  // namespace kv::memory
