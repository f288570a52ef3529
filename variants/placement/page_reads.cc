#include "variants/placement/page_reads.h"

#include <algorithm>
#include <chrono>

namespace kv::placement {

void PageReads::read(std::span<const PieceRows> wanted,
                     const std::function<int64_t(const PieceRows&)>& slot_of, std::vector<Span>& out) {
  parts_.clear();
  needed_ = 0;
  const UnitLayout& unit = layout_.unit();
  for (const PieceRows& rows : wanted) {
    const int64_t slot = file_.offset(slot_of(rows)), first = rows.begin % layout_.units();
    for (int p = 0; p < kPlanes; ++p) {
      if (unit.bytes[p] > 0)
        add(slot + layout_.offset(p, rows.head, first), unit.bytes[p] * (rows.end - rows.begin));
    }
  }
  read_parts();
  out.clear();
  auto part = parts_.begin();
  for (const PieceRows& rows : wanted) {
    std::array<const std::byte*, kPlanes> base{};
    for (int p = 0; p < kPlanes; ++p) base[p] = unit.bytes[p] > 0 ? of(*part++) : nullptr;
    out.push_back(make_span(unit, base, unit.bytes, rows.end - rows.begin));
  }
}

void PageReads::add(int64_t offset, int64_t bytes) {
  constexpr int64_t kApart = 64;  // rows of different parts share no cache line
  const int64_t grain = file_.grain(), first = offset / grain * grain;
  const int64_t covered = (offset + bytes + grain - 1) / grain * grain - first;
  parts_.push_back({first, covered, offset - first, needed_, {}});
  needed_ += (covered + kApart - 1) / kApart * kApart;
}

void PageReads::read_parts() {
  if (needed_ > held_) {
    buffer_ = SlotBuffer();
    held_ = 0;
    const int64_t bytes = needed_ + needed_ / 4;  // the next step's choice is seldom as large as this one's
    buffer_ = SlotBuffer(memory_, bytes);
    held_ = bytes;
  }
  if (!requests_) requests_ = file_.requests(kMostInFlight);
  last_done_ = SpillFile::Clock::now();
  error_.reset();
  size_t asked = 0, done = 0;
  while (done < asked || (asked < parts_.size() && !error_)) {
    if (asked - done == kMostInFlight || asked == parts_.size() || error_) {
      receive();
      ++done;
      continue;
    }
    Part& part = parts_[asked];
    part.asked = SpillFile::Clock::now();
    requests_->submit(static_cast<int64_t>(asked++), part.offset, part.bytes, buffer_.data() + part.place);
  }
  if (error_) throw *error_;
}

// A request's time is what it adds to the time in which any was in flight. Attention waits for all of it.
void PageReads::receive() {
  const FileRequests::Done done = requests_->wait();
  const Part& part = parts_[static_cast<size_t>(done.tag)];
  file_.hold_back(part.asked, part.bytes);
  const auto now = SpillFile::Clock::now();
  const std::chrono::duration<double> took = now - std::max(last_done_, part.asked);
  last_done_ = now;
  if (done.error != 0 || done.cut) {
    error_ = file_.read_error(done.error);
    return;
  }
  memory_.count_disk_read(part.bytes, took.count());
  memory_.count_disk_wait(took.count());
}

}  // namespace kv::placement
