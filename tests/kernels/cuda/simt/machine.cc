#include "simt/machine.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>

// GCC defines a macro, Clang a feature.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KVLAB_ADDRESS_SANITIZER
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define KVLAB_ADDRESS_SANITIZER
#endif
#ifdef KVLAB_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

namespace kv::simt {
namespace {

// The address sanitizer must be told of every change of stack.
#ifdef KVLAB_ADDRESS_SANITIZER
constexpr size_t kStackBytes = 256 * 1024;
void start_switch(void** save, const void* stack, size_t bytes) {
  __sanitizer_start_switch_fiber(save, stack, bytes);
}
void finish_switch(void* saved, const void** from, size_t* bytes) {
  __sanitizer_finish_switch_fiber(saved, from, bytes);
}
#else
constexpr size_t kStackBytes = 64 * 1024;
void start_switch(void**, const void*, size_t) {}
void finish_switch(void*, const void**, size_t*) {}
#endif

// A function of its own: a jump and its target may not share one.
[[noreturn]] __attribute__((noinline)) void jump(void** to) { __builtin_longjmp(to, 1); }

constexpr int kPoison = 0xff;  // NaN in every floating-point format

thread_local Machine* g_machine = nullptr;

// Launches share stacks: new ones would take longer than most kernels.
std::byte* stack_of(int thread) {
  static thread_local std::vector<std::unique_ptr<std::byte[]>> stacks;
  while (std::ssize(stacks) <= thread) {
    stacks.push_back(std::make_unique_for_overwrite<std::byte[]>(kStackBytes));
  }
  return stacks[static_cast<size_t>(thread)].get();
}

}  // namespace

Machine& Machine::current() { return *g_machine; }

Machine::Machine(const Launch& launch, const std::function<void()>& kernel)
    : launch_(launch),
      kernel_(kernel),
      random_(launch.seed),
      fibers_(static_cast<size_t>(launch.threads)),
      warps_(static_cast<size_t>(launch.threads / kWarp)),
      shared_room_(launch.shared_bytes + 128) {
  const auto address = reinterpret_cast<uintptr_t>(shared_room_.data());
  shared_ = shared_room_.data() + (128 - address % 128) % 128;
  for (int thread = 0; thread < launch.threads; ++thread)
    fibers_[static_cast<size_t>(thread)].stack = stack_of(thread);
}

void Machine::run(const Launch& launch, const std::function<void()>& kernel) {
  if (launch.threads % kWarp != 0) throw std::logic_error("a block must have whole warps");
  Machine machine(launch, kernel);
  std::vector<int> order(static_cast<size_t>(launch.grid.count()));
  std::iota(order.begin(), order.end(), 0);
  if (launch.seed) std::shuffle(order.begin(), order.end(), machine.random_);
  g_machine = &machine;
  for (const int i : order) {
    const Dim& grid = launch.grid;
    if (machine.failure_.empty()) machine.run_block({i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y});
  }
  if (machine.thrown_) std::rethrow_exception(machine.thrown_);
  if (!machine.failure_.empty()) throw std::logic_error(machine.failure_);
}

void Machine::run_block(Dim block) {
  block_ = block;
  at_barrier_ = done_ = 0;
  std::memset(shared_, kPoison, launch_.shared_bytes);
  for (Warp& warp : warps_) {
    warp = Warp();
    for (auto& room : warp.room) room.assign(kWarp * kRoom, std::byte{0});
  }
  for (Fiber& fiber : fibers_) {
    fiber.started = fiber.done = false;
    fiber.wait = Wait::kNothing;
    fiber.meetings = 0;
    fiber.groups.clear();
    fiber.open_group.clear();
  }
  std::vector<int> order(warps_.size());
  std::iota(order.begin(), order.end(), 0);
  while (done_ < launch_.threads && failure_.empty()) {
    if (launch_.seed) std::shuffle(order.begin(), order.end(), random_);
    // Picks a warp that can go on; if none can, the block is stuck.
    if (std::none_of(order.begin(), order.end(), [&](int warp) { return run_warp(warp); })) {
      fail("threads wait for each other: a barrier or a warp operation that not all of them reach");
    }
  }
}

// Runs a warp until none of its lanes can go on; false if none could.
bool Machine::run_warp(int warp) {
  std::vector<int> lanes(kWarp);
  std::iota(lanes.begin(), lanes.end(), 0);
  bool any = false;
  for (bool progress = true; progress && failure_.empty();) {
    progress = false;
    if (launch_.seed) std::shuffle(lanes.begin(), lanes.end(), random_);
    for (const int lane : lanes) {
      const int thread = warp * kWarp + lane;
      if (!failure_.empty() || !can_run(fibers_[thread], warp)) continue;
      switch_to(thread);
      any = progress = true;
    }
  }
  return any;
}

bool Machine::can_run(const Fiber& fiber, int warp) const {
  if (fiber.done || fiber.wait == Wait::kBarrier) return false;
  return fiber.wait == Wait::kNothing || warps_[warp].posted >= fiber.meetings * kWarp;
}

// swapcontext makes a system call for the signal mask, so only the first entry into a fiber uses it. Later ones use the
// compiler's setjmp; the library's takes a jump to another fiber for a broken stack.
void Machine::switch_to(int thread) {
  running_ = thread;
  Fiber& fiber = fibers_[thread];
  const bool first = !std::exchange(fiber.started, true);
  if (first) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, entry, 0);
  }
  void* own = nullptr;
  start_switch(&own, fiber.stack, kStackBytes);
  enter(fiber, first);
  finish_switch(own, nullptr, nullptr);
}

// Returns when the fiber yields.
void Machine::enter(Fiber& fiber, bool first) {
  if (__builtin_setjmp(scheduler_) != 0) return;
  if (first) setcontext(&fiber.context);
  jump(fiber.resume);
}

void Machine::yield() {
  Fiber& fiber = fibers_[running_];
  start_switch(fiber.done ? nullptr : &fiber.fake_stack, scheduler_stack_, scheduler_stack_bytes_);
  leave(fiber);
  finish_switch(fiber.fake_stack, &scheduler_stack_, &scheduler_stack_bytes_);
}

void Machine::leave(Fiber& fiber) {
  if (__builtin_setjmp(fiber.resume) == 0) jump(scheduler_);
}

void Machine::entry() {
  Machine& machine = current();
  finish_switch(nullptr, &machine.scheduler_stack_, &machine.scheduler_stack_bytes_);
  try {
    machine.kernel_();
  } catch (...) {
    machine.thrown_ = std::current_exception();
    machine.failure_ = "a kernel threw";
  }
  Fiber& fiber = machine.fibers_[machine.running_];
  const bool landed = std::all_of(fiber.groups.begin(), fiber.groups.end(),
                                  [](const std::vector<Copy>& group) { return group.empty(); });
  if (machine.failure_.empty() && (!landed || !fiber.open_group.empty())) {
    machine.failure_ = "a thread ended before its asynchronous copies had landed";
  }
  fiber.done = true;
  ++machine.done_;
  for (;;) machine.yield();
}

void Machine::fail(const std::string& what) { throw std::logic_error(what); }

bool Machine::skips(const char* call, const char* file, unsigned line) {
  if (!launch_.seen && !launch_.skipped) return false;
  const Site site{call, file, line};
  if (launch_.seen) launch_.seen->insert(site);
  return launch_.skipped == site;
}

void Machine::block_barrier() {
  if (++at_barrier_ == launch_.threads) {
    at_barrier_ = 0;
    for (Fiber& fiber : fibers_) {
      if (fiber.wait == Wait::kBarrier) fiber.wait = Wait::kNothing;
    }
    return;
  }
  fibers_[running_].wait = Wait::kBarrier;
  yield();
}

const std::byte* Machine::meet(const char* operation, int detail, const void* own, size_t bytes) {
  Fiber& fiber = fibers_[running_];
  Warp& warp = warps_[running_ / kWarp];
  const uint64_t meeting = ++fiber.meetings;
  std::byte* room = warp.room[meeting % 2].data();
  std::memcpy(room + lane() * kRoom, own, bytes);
  if (warp.meeting < meeting) {
    warp.meeting = meeting;
    warp.operation = operation;
    warp.detail = detail;
  } else if (warp.operation != operation || warp.detail != detail) {
    fail("lanes of a warp meet in " + warp.operation + " " + std::to_string(warp.detail) + " and in " +
         operation + " " + std::to_string(detail));
  }
  if (++warp.posted < meeting * kWarp) {
    fiber.wait = Wait::kMeeting;
    yield();
    fiber.wait = Wait::kNothing;
  }
  return room;
}

void Machine::copy_async(void* to, const void* from, size_t bytes) {
  std::byte* const target = static_cast<std::byte*>(to);
  if (reinterpret_cast<uintptr_t>(to) % bytes != 0 || reinterpret_cast<uintptr_t>(from) % bytes != 0) {
    fail("an asynchronous copy of " + std::to_string(bytes) + " bytes is not aligned to that");
  }
  if (target < shared_ || target + bytes > shared_ + launch_.shared_bytes) {
    fail("an asynchronous copy's target lies outside shared memory");
  }
  std::memset(target, kPoison, bytes);
  if (launch_.copied_bytes && from) *launch_.copied_bytes += static_cast<int64_t>(bytes);
  fibers_[running_].open_group.push_back({target, static_cast<const std::byte*>(from), bytes});
}

void Machine::commit_copies() {
  Fiber& fiber = fibers_[running_];
  fiber.groups.push_back(std::move(fiber.open_group));
  fiber.open_group.clear();
}

void Machine::wait_copies(int pending) {
  Fiber& fiber = fibers_[running_];
  while (static_cast<int>(fiber.groups.size()) > pending) {
    for (const Copy& copy : fiber.groups.front()) {
      if (copy.from) {
        std::memcpy(copy.to, copy.from, copy.bytes);
      } else {
        std::memset(copy.to, 0, copy.bytes);
      }
    }
    fiber.groups.erase(fiber.groups.begin());
  }
}

}  // namespace kv::simt
