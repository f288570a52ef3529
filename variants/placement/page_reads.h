// Reads single rows of a spill file's slots: the rows that a selection chooses.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "kernels/span.h"
#include "variants/placement/file_requests.h"
#include "variants/placement/slot_buffer.h"
#include "variants/placement/slot_layout.h"
#include "variants/placement/spill_file.h"

namespace kv::placement {

class PageReads {
 public:
  static constexpr int kMostInFlight = 64;  // pages are small: a disk needs many requests of 4 KiB to be busy

  // File and layout outlive it. Buffers are workspace of `memory`. For one thread at a time.
  PageReads(Memory& memory, const SpillFile& file, const SlotLayout& layout)
      : memory_(memory), file_(file), layout_(layout) {}

  // Rows of units of one row each -> out [wanted], which stay until the next call. `slot_of`: where the piece lies. Throws
  // std::bad_alloc, or std::runtime_error in one line where a read fails.
  void read(std::span<const PieceRows> wanted, const std::function<int64_t(const PieceRows&)>& slot_of,
            std::vector<Span>& out);

 private:
  // One read. In a file that bypasses the page cache: the aligned bytes around the wanted ones.
  struct Part {
    int64_t offset, bytes;  // that are read
    int64_t skip;           // bytes before the first that is asked for
    int64_t place;          // in the buffer
    SpillFile::Clock::time_point asked;
  };
  void add(int64_t offset, int64_t bytes);
  void read_parts();
  void receive();
  const std::byte* of(const Part& part) const { return buffer_.data() + part.place + part.skip; }

  Memory& memory_;
  const SpillFile& file_;
  const SlotLayout& layout_;
  std::unique_ptr<FileRequests> requests_;
  std::vector<Part> parts_;  // all wanted rows, plane by plane
  int64_t needed_ = 0;       // bytes of the buffer
  int64_t held_ = 0;
  SlotBuffer buffer_;
  SpillFile::Clock::time_point last_done_{};
  std::optional<std::runtime_error> error_;
};

}  // namespace kv::placement
