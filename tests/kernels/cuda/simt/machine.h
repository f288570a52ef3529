// A GPU's block of threads on one CPU core: every thread is a fiber. Barriers, shuffles and matrix products run here, so that a
// kernel's own source runs, and fails, without a GPU.
//
// The machine is adversarial:
//   - a seed picks the order of blocks, of warps and of a warp's lanes; a warp runs as far as its next
//     block-wide barrier before any other does, so that no warps are in step by luck
//   - shared memory starts as NaN; an asynchronous copy poisons its target when it is issued and lands only
//     when its thread waits for it
//   - lanes that meet in different warp operations, a barrier that not all threads reach, and a misaligned
//     or stray asynchronous copy throw std::logic_error
// It cannot show bank conflicts, the order in which memory becomes visible to other blocks, or speed.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace kv::simt {

inline constexpr int kWarp = 32;

struct Dim {
  int x = 1, y = 1, z = 1;
  int count() const { return x * y * z; }
};

// A place in a kernel's source where threads wait for each other or for memory.
struct Site {
  std::string call, file;
  unsigned line;
  auto operator<=>(const Site&) const = default;
};

struct Launch {
  Dim grid{};
  int threads = 32;  // a block; a multiple of a warp
  size_t shared_bytes = 0;
  unsigned seed = 0;  // 0: in order
  // For tests of the tests: the places that the kernel passed, and one whose call does nothing.
  std::set<Site>* seen = nullptr;
  std::optional<Site> skipped{};
  int64_t* copied_bytes = nullptr;  // asynchronously, from memory; is added to
};

class Machine {
 public:
  // Runs `kernel` once for every thread of every block, one block after the other.
  static void run(const Launch& launch, const std::function<void()>& kernel);
  // The machine that runs the calling kernel.
  static Machine& current();

  int thread() const { return running_; }
  int lane() const { return running_ % kWarp; }
  Dim block() const { return block_; }
  const Launch& launch() const { return launch_; }
  std::byte* shared() { return shared_; }

  // True if the call at this place is to be left out.
  bool skips(const char* call, const char* file, unsigned line);

  void block_barrier();

  // A warp's meeting: every lane brings `bytes` bytes and sees those of all lanes, at stride kRoom, until its next meeting.
  // `operation` must be the same in all lanes.
  static constexpr size_t kRoom = 64;
  const std::byte* meet(const char* operation, int detail, const void* own, size_t bytes);

  // `bytes` to shared memory; zeros if there is no source.
  void copy_async(void* to, const void* from, size_t bytes);
  void commit_copies();
  // Lands all groups but the newest `pending`.
  void wait_copies(int pending);

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;
    size_t bytes;
  };
  enum class Wait { kNothing, kMeeting, kBarrier };
  struct Fiber {
    std::byte* stack;
    ucontext_t context;
    void* resume[5];
    bool started = false, done = false;
    Wait wait = Wait::kNothing;
    uint64_t meetings = 0;
    std::vector<std::vector<Copy>> groups;
    std::vector<Copy> open_group;
    void* fake_stack = nullptr;  // the address sanitizer's
  };
  struct Warp {
    std::vector<std::byte> room[2];  // this meeting's and the previous one's
    uint64_t posted = 0;             // in all meetings, by all lanes
    uint64_t meeting = 0;            // the meeting of `operation`
    std::string operation;
    int detail = 0;
  };

  Machine(const Launch& launch, const std::function<void()>& kernel);
  void run_block(Dim block);
  bool run_warp(int warp);
  bool can_run(const Fiber& fiber, int warp) const;
  void switch_to(int thread);
  __attribute__((noinline)) void enter(Fiber& fiber, bool first);
  void yield();
  __attribute__((noinline)) void leave(Fiber& fiber);
  void finish_barrier();
  [[noreturn]] void fail(const std::string& what);
  static void entry();

  const Launch launch_;
  const std::function<void()>& kernel_;
  std::mt19937 random_;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::vector<std::byte> shared_room_;
  std::byte* shared_ = nullptr;
  Dim block_;
  int running_ = 0;
  int at_barrier_ = 0, done_ = 0;
  std::string failure_;
  std::exception_ptr thrown_;
  void* scheduler_[5];
  const void* scheduler_stack_ = nullptr;  // for the address sanitizer
  size_t scheduler_stack_bytes_ = 0;
};

}  // namespace kv::simt
