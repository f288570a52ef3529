// Slots of a spill file, read ahead of their use.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include "variants/placement/file_requests.h"
#include "variants/placement/slot_buffer.h"
#include "variants/placement/spill_file.h"

namespace kv {

// One thread keeps requests of up to kMostRequestBytes in flight, two or more, as long as there are buffers; these are
// used in turn. While its user works on one slot, the next ones come. For one user at a time.
class ReadAhead {
 public:
  static constexpr int64_t kMostRequestBytes = 4 << 20;
  static int64_t request_bytes(int64_t slot_bytes) { return std::min(slot_bytes, kMostRequestBytes); }

  // The file outlives it. Buffers are workspace of `memory`, made when they are first needed.
  ReadAhead(Memory& memory, const SpillFile& file);
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead();

  // A buffer of one slot while nothing is read.
  std::byte* idle_buffer();

  // Reads slots in their order while it lives; its end waits for requests in flight.
  class Run {
   public:
    // `slots` outlive it. Throws std::bad_alloc.
    Run(ReadAhead& reader, std::span<const int64_t> slots) : reader_(reader) { reader_.begin(slots); }
    ~Run() { reader_.end(); }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    // True if the next slot is there already.
    bool is_there() const { return reader_.is_there(); }
    // Waits for the next slot, which stays until give_back() was called once for each slot before it and for itself. Throws
    // std::runtime_error in one line if it could not be read.
    const std::byte* next() { return reader_.next(); }
    void give_back() { reader_.give_back(); }

   private:
    ReadAhead& reader_;
  };

 private:
  using Clock = std::chrono::steady_clock;

  void begin(std::span<const int64_t> slots);
  void end();
  bool is_there() const;
  const std::byte* next();
  void give_back();
  size_t buffer_of(int64_t slot) const { return static_cast<size_t>(slot) % buffers_.size(); }
  // While the mutex is held:
  bool has_next() const { return error_ || missing_[buffer_of(taken_)] == 0; }

  // The thread's.
  void work();
  bool may_ask() const;
  void ask(int64_t request, int64_t slot);
  void receive(const FileRequests::Done& done);
  // The first byte of a request in its slot; all requests but a slot's last have one size.
  int64_t first_byte(int64_t request) const { return request % requests_of_slot_ * kMostRequestBytes; }
  int64_t bytes_of(int64_t request) const;
  size_t asked_index(int64_t request) const { return static_cast<size_t>(request) % asked_at_.size(); }

  Memory& memory_;
  const SpillFile& file_;
  const int64_t requests_of_slot_;
  const int most_in_flight_;
  std::vector<placement::SlotBuffer> buffers_;  // slot i of a run comes into buffer i modulo their number
  std::unique_ptr<FileRequests> requests_;
  std::vector<Clock::time_point> asked_at_;  // by request, modulo those of all buffers
  Clock::time_point last_done_{};

  mutable std::mutex mutex_;
  std::condition_variable for_thread_, for_user_;
  std::span<const int64_t> slots_;
  std::vector<int64_t> missing_;        // by buffer: requests that its slot still waits for
  int64_t asked_ = 0;                   // requests of this run
  int64_t taken_ = 0, given_back_ = 0;  // slots of this run
  int in_flight_ = 0;                   // requests
  std::optional<std::runtime_error> error_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace kv
