// A nameless file of equal slots, for rows that no longer fit in memory. Since it has no name, nothing is
// left of it after any exit, a kill included.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "variants/core/memory.h"

namespace kv {

class SpillFile {
 public:
  // What O_DIRECT asks of addresses, offsets and sizes on any disk in use.
  static constexpr int64_t kAlignment = 4096;
  static int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  // The folder of a placement's `dir`: $TMPDIR or /tmp if that is empty.
  static std::string folder(const std::string& dir);
  // Why `folder` cannot have such a file, or empty if it can.
  static std::string refuses(const std::string& folder, bool direct);

  // A file in `folder` with slots of `slot_bytes`, a multiple of kAlignment. `direct`: reads and writes go
  // past the page cache. `link_gbps`: GB/s (1e9 bytes) to which reads are slowed, all requests together; 0: as fast as
  // they are. Throws std::runtime_error where the folder cannot have such a file.
  SpillFile(Memory& memory, const std::string& folder, bool direct, int64_t slot_bytes, double link_gbps = 0);
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;
  ~SpillFile();

  // Makes sure that the next `slots` calls of take() need no more disk; throws std::runtime_error, and holds
  // no more than before, where the disk is full.
  void prepare(int64_t slots);
  int64_t take();
  void give_back(int64_t slot) noexcept;

  // A whole slot from or to memory aligned to kAlignment. Throw std::runtime_error in one line. The memory is told
  // of each read.
  void write(int64_t slot, const std::byte* from);
  void read(int64_t slot, std::byte* to) const;

 private:
  static int open_in(const std::string& folder, bool direct);
  [[noreturn]] void fail(const std::string& what, int error) const;
  void allocate_slot();
  using Clock = std::chrono::steady_clock;
  // When a link that carries one request after the other has carried this one.
  Clock::time_point arrival(Clock::time_point asked) const;

  Memory& memory_;
  const std::string folder_;
  const int64_t slot_bytes_;
  const int fd_;
  const double link_gbps_;
  mutable std::mutex link_;
  mutable Clock::time_point link_free_{};  // from then on
  int64_t slots_ = 0;                      // that the file has room for, holes included
  std::vector<int64_t> prepared_;          // on the disk, not in use
  std::vector<int64_t> holes_;             // neither
};

}  // namespace kv
