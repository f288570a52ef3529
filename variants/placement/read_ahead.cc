#include "variants/placement/read_ahead.h"

#include <algorithm>
#include <chrono>

namespace kv {
namespace {

// With fewer bytes asked for, a disk waits for the next request; with more, it reads no faster.
constexpr int64_t kBytesInFlight = 8 << 20;
constexpr int64_t kMostInFlight = 8;

int64_t parts(int64_t bytes, int64_t part) { return (bytes + part - 1) / part; }

// One buffer is worked on, and one was before it. Half of the others may be full while requests are in flight to the rest,
// so that the disk stays busy when a thread is descheduled.
int64_t buffers_for(int64_t slot_bytes) {
  return slot_bytes > kBytesInFlight
             ? 3
             : 2 + 2 * std::clamp<int64_t>(kBytesInFlight / slot_bytes, 1, kMostInFlight);
}

}  // namespace

ReadAhead::ReadAhead(Memory& memory, const SpillFile& file)
    : memory_(memory),
      file_(file),
      requests_of_slot_(parts(file.slot_bytes(), kMostRequestBytes)),
      most_in_flight_(static_cast<int>(
          std::clamp<int64_t>(kBytesInFlight / request_bytes(file.slot_bytes()), 2, kMostInFlight))),
      buffers_(static_cast<size_t>(buffers_for(file.slot_bytes()))),
      asked_at_(static_cast<size_t>(requests_of_slot_) * buffers_.size()),
      missing_(buffers_.size()) {}

ReadAhead::~ReadAhead() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  for_thread_.notify_one();
  thread_.join();
}

std::byte* ReadAhead::idle_buffer() {
  if (!buffers_[0]) buffers_[0] = placement::SlotBuffer(memory_, file_.slot_bytes());
  return buffers_[0].data();
}

void ReadAhead::begin(std::span<const int64_t> slots) {
  for (size_t i = 0; i < std::min(slots.size(), buffers_.size()); ++i) {
    if (!buffers_[i]) buffers_[i] = placement::SlotBuffer(memory_, file_.slot_bytes());
  }
  if (!requests_) requests_ = file_.requests(most_in_flight_);
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  {
    const std::lock_guard lock(mutex_);
    slots_ = slots;
    std::ranges::fill(missing_, requests_of_slot_);
    asked_ = taken_ = given_back_ = 0;
    error_.reset();
    last_done_ = Clock::now();
  }
  for_thread_.notify_one();
}

void ReadAhead::end() {
  std::unique_lock lock(mutex_);
  slots_ = {};
  for_user_.wait(lock, [&] { return in_flight_ == 0; });
}

bool ReadAhead::is_there() const {
  const std::lock_guard lock(mutex_);
  return has_next();
}

const std::byte* ReadAhead::next() {
  std::unique_lock lock(mutex_);
  if (!has_next()) {
    const auto start = Clock::now();
    for_user_.wait(lock, [&] { return has_next(); });
    const std::chrono::duration<double> waited = Clock::now() - start;
    memory_.count_disk_wait(waited.count());
  }
  if (error_) throw *error_;
  return buffers_[buffer_of(taken_++)].data();
}

void ReadAhead::give_back() {
  {
    const std::lock_guard lock(mutex_);
    missing_[buffer_of(given_back_++)] = requests_of_slot_;
  }
  for_thread_.notify_one();
}

int64_t ReadAhead::bytes_of(int64_t request) const {
  return std::min(kMostRequestBytes, file_.slot_bytes() - first_byte(request));
}

void ReadAhead::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    for_thread_.wait(lock, [&] { return stop_ || in_flight_ > 0 || may_ask(); });
    if (stop_) return;
    while (may_ask()) {
      const int64_t request = asked_++, slot = slots_[static_cast<size_t>(request / requests_of_slot_)];
      ++in_flight_;
      lock.unlock();
      ask(request, slot);
      lock.lock();
    }
    lock.unlock();
    const FileRequests::Done done = requests_->wait();
    file_.hold_back(asked_at_[asked_index(done.tag)], bytes_of(done.tag));
    lock.lock();
    receive(done);
  }
}

bool ReadAhead::may_ask() const {
  const int64_t slot = asked_ / requests_of_slot_;
  return !error_ && in_flight_ < most_in_flight_ && slot < std::ssize(slots_) &&
         slot < given_back_ + std::ssize(buffers_);
}

void ReadAhead::ask(int64_t request, int64_t slot) {
  asked_at_[asked_index(request)] = Clock::now();
  requests_->submit(request, file_.offset(slot) + first_byte(request), bytes_of(request),
                    buffers_[buffer_of(request / requests_of_slot_)].data() + first_byte(request));
}

// A request's time is what it adds to the time in which any was in flight.
void ReadAhead::receive(const FileRequests::Done& done) {
  --in_flight_;
  const auto now = Clock::now();
  const std::chrono::duration<double> took = now - std::max(last_done_, asked_at_[asked_index(done.tag)]);
  last_done_ = now;
  if (done.error != 0 || done.cut) {
    error_ = file_.read_error(done.error);
  } else {
    memory_.count_disk_read(bytes_of(done.tag), took.count());
    --missing_[buffer_of(done.tag / requests_of_slot_)];
  }
  for_user_.notify_one();
}

}  // namespace kv
