// A nameless file of equal slots, for rows that no longer fit in memory. Without a name it vanishes at any exit, a kill
// included.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "variants/core/memory.h"
#include "variants/placement/file_requests.h"

namespace kv {

class SpillFile {
 public:
  // The alignment that O_DIRECT needs of addresses, offsets and sizes on any disk in use.
  static constexpr int64_t kAlignment = 4096;
  static int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  // The folder of a placement's `dir`: $TMPDIR or /tmp if that is empty.
  static std::string folder(const std::string& dir);
  // Why `folder` cannot have such a file, or empty if it can.
  static std::string refuses(const std::string& folder, bool direct);

  // A file in `folder` with slots of `slot_bytes`, a multiple of kAlignment. `direct`: reads and writes go
  // past the page cache. `link_gbps`: GB/s (1e9 bytes) that all reads together are slowed to; 0: not slowed.
  // Throws std::runtime_error if the folder cannot have such a file.
  SpillFile(Memory& memory, const std::string& folder, bool direct, int64_t slot_bytes, double link_gbps = 0);
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;
  ~SpillFile();

  // Reserves disk for the next `slots` calls of take(). Throws DiskError, and holds no more than before, if the disk
  // is full.
  void prepare(int64_t slots);
  int64_t take();
  void give_back(int64_t slot) noexcept;

  // A whole slot from memory aligned to kAlignment. Throws DiskError in one line.
  void write(int64_t slot, const std::byte* from);

  // For its readers (read_ahead.h).
  int64_t slot_bytes() const { return slot_bytes_; }
  // Offsets and sizes of reads are multiples of this.
  int64_t grain() const { return direct_ ? kAlignment : 1; }
  int64_t offset(int64_t slot) const { return slot * slot_bytes_; }
  std::unique_ptr<FileRequests> requests(int most_in_flight) const {
    return FileRequests::of(fd_, direct_, most_in_flight);
  }
  using Clock = std::chrono::steady_clock;
  // Returns when a link that carries one request after the other would have carried this one, asked for at that time.
  void hold_back(Clock::time_point asked, int64_t bytes) const;
  // In one line; 0 where the file ended too early.
  std::runtime_error read_error(int error) const;

 private:
  static int open_in(const std::string& folder, bool direct);
  std::string error_of(const std::string& what, int error) const;
  void allocate_slot();

  Memory& memory_;
  const std::string folder_;
  const int64_t slot_bytes_;
  const bool direct_;
  const int fd_;
  const double link_gbps_;
  mutable std::mutex link_;
  mutable Clock::time_point link_free_{};  // from then on
  int64_t slots_ = 0;                      // that the file has room for, holes included
  std::vector<int64_t> prepared_;          // on the disk, not in use
  std::vector<int64_t> holes_;             // neither
};

}  // namespace kv
