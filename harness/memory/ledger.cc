// Bytes are counted twice on purpose: the public functions keep a sum for each kind; take and give_back keep the
// allocator's total and know no kinds. assert_balanced compares the two.
#include "harness/memory/ledger.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <stdexcept>
#include <string>

#include "kernels/cuda/gpu.h"

namespace kv::memory {
namespace {

constexpr size_t kAlignment = 64;

// Blocks of at least this size use huge pages: one core read 25 GB/s with pages of 4 KiB and 31 to 35 with huge ones
// (kernels/LOG.md, v5). Smaller blocks would waste too large a part of a page.
constexpr size_t kHugePage = size_t{2} << 20, kHugeFrom = 4 * kHugePage;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Replaces aligned_alloc. glibc's requests more than the size and returns the ends, so a freed block is too small for
// the next of its size, and a growing cache took new pages at every step although freed ones were kept. The pointer
// from malloc stands before the block.
void* take_aligned(size_t bytes, size_t alignment) {
  void* given = std::malloc(bytes + alignment + sizeof given);
  if (!given) return nullptr;
  const size_t first = reinterpret_cast<size_t>(given) + sizeof given;
  auto* p = static_cast<std::byte*>(given) + (round_up(first, alignment) - first) + sizeof given;
  std::memcpy(p - sizeof given, &given, sizeof given);
  return p;
}

void* take_pages(size_t bytes) {
  if (bytes < kHugeFrom) return take_aligned(round_up(bytes, kAlignment), kAlignment);
  void* p = take_aligned(round_up(bytes, kHugePage), kHugePage);
  if (p) madvise(p, round_up(bytes, kHugePage), MADV_HUGEPAGE);  // a hint: without it, small pages
  return p;
}

void give_back_pages(std::byte* p) noexcept {
  void* given;
  std::memcpy(&given, p - sizeof given, sizeof given);
  std::free(given);
}

cuda::Gpu::Place gpu_place(bool pinned) {
  return pinned ? cuda::Gpu::Place::kPinned : cuda::Gpu::Place::kDevice;
}

}  // namespace

// Leaves the pages untouched: the first writer faults them in, so resident memory follows real use.
std::byte* Ledger::take(size_t bytes, Place place) {
  if (bytes > static_cast<size_t>(limit_bytes_ - allocator_bytes_)) throw std::bad_alloc();
  if (bytes > PTRDIFF_MAX - kHugePage) throw std::bad_alloc();
  void* p =
      place == Place::kHost ? take_pages(bytes) : gpu_->allocate(bytes, gpu_place(place == Place::kPinned));
  if (!p) throw std::bad_alloc();
  allocator_bytes_ += static_cast<int64_t>(bytes);
  return static_cast<std::byte*>(p);
}

void Ledger::give_back(std::byte* p, size_t bytes, Place place) noexcept {
  if (place == Place::kHost) {
    give_back_pages(p);
  } else {
    gpu_->release(p, gpu_place(place == Place::kPinned));
  }
  allocator_bytes_ -= static_cast<int64_t>(bytes);
}

Ledger::~Ledger() {
  for (const auto& [p, live] : live_) give_back(const_cast<std::byte*>(p), live.bytes, live.place);
}

std::byte* Ledger::allocate(size_t bytes, ByteKind kind) {
  return allocate(bytes, kind, Place::kHost, Tier::kHot);
}

std::byte* Ledger::allocate_rows(size_t bytes, ByteKind kind, Tier tier) {
  const Place place = !gpu_ ? Place::kHost : tier == Tier::kWarm ? Place::kPinned : Place::kGpu;
  return allocate(bytes, kind, place, tier);
}

std::byte* Ledger::allocate(size_t bytes, ByteKind kind, Place place, Tier tier) {
  if (bytes == 0) throw std::logic_error("Ledger::allocate: 0 bytes asked for");
  const std::lock_guard lock(mutex_);
  std::byte* p = take(bytes, place);
  try {
    live_.emplace(p, Live{bytes, kind, place, tier});
  } catch (...) {
    give_back(p, bytes, place);
    throw;
  }
  const auto add_to = [&](Count& count) {
    count.current_bytes += static_cast<int64_t>(bytes);
    count.peak_bytes = std::max(count.peak_bytes, count.current_bytes);
    ++count.allocations;
  };
  add_to(counts_[static_cast<size_t>(kind)]);
  if (place == Place::kGpu) add_to(device_);
  if (tier == Tier::kWarm && kind != ByteKind::kWorkspace) warm_bytes_ += static_cast<int64_t>(bytes);
  peak_total_bytes_ = std::max(peak_total_bytes_, allocator_bytes_);
  return p;
}

void Ledger::release(std::byte* p) noexcept {
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(p);
  if (it == live_.end()) {
    std::fprintf(stderr, "Ledger::release: %p is not held (released twice, or never allocated here)\n",
                 static_cast<void*>(p));
    std::abort();
  }
  const Live live = it->second;
  live_.erase(it);
  counts_[static_cast<size_t>(live.kind)].current_bytes -= static_cast<int64_t>(live.bytes);
  if (live.place == Place::kGpu) device_.current_bytes -= static_cast<int64_t>(live.bytes);
  if (live.tier == Tier::kWarm && live.kind != ByteKind::kWorkspace)
    warm_bytes_ -= static_cast<int64_t>(live.bytes);
  give_back(p, live.bytes, live.place);
}

void Ledger::copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes == 0) return;
  gpu_ ? gpu_->copy(to, from, bytes) : static_cast<void>(std::memcpy(to, from, bytes));
  const std::lock_guard lock(mutex_);
  copied_bytes_ += static_cast<int64_t>(bytes);
}

void Ledger::count_disk(int64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  disk_.current_bytes += bytes;
  disk_.peak_bytes = std::max(disk_.peak_bytes, disk_.current_bytes);
  if (bytes > 0) ++disk_.allocations;
}

void Ledger::count_disk_read(int64_t bytes, double seconds) noexcept {
  const std::lock_guard lock(mutex_);
  disk_reads_.bytes += bytes;
  disk_reads_.seconds += seconds;
  ++disk_reads_.requests;
}

void Ledger::count_disk_wait(double seconds) noexcept {
  const std::lock_guard lock(mutex_);
  disk_reads_.waited += seconds;
}

void Ledger::count_call(double seconds) noexcept {
  const std::lock_guard lock(mutex_);
  ++calls_.count;
  calls_.seconds += seconds;
}

void Ledger::count_codes(int64_t values, int64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  calls_.coded_values += values;
  calls_.code_bytes += bytes;
}

Ledger::Calls Ledger::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

Ledger::DiskReads Ledger::disk_reads() const {
  const std::lock_guard lock(mutex_);
  return disk_reads_;
}

TierBytes Ledger::tiers() const {
  const std::lock_guard lock(mutex_);
  const int64_t memory = counts_[static_cast<size_t>(ByteKind::kPayload)].current_bytes +
                         counts_[static_cast<size_t>(ByteKind::kMetadata)].current_bytes;
  return {.hot = memory - warm_bytes_, .warm = warm_bytes_, .disk = disk_.current_bytes};
}

std::optional<Tier> Ledger::tier_at(const std::byte* p) const {
  const std::lock_guard lock(mutex_);
  const auto next = live_.upper_bound(p);
  if (next == live_.begin()) return {};
  const auto& [first, live] = *std::prev(next);
  if (p >= first + live.bytes || live.kind == ByteKind::kWorkspace) return {};
  return live.tier;
}

Ledger::Count Ledger::disk() const {
  const std::lock_guard lock(mutex_);
  return disk_;
}

Ledger::Count Ledger::device() const {
  const std::lock_guard lock(mutex_);
  return device_;
}

Ledger::Count Ledger::at(ByteKind kind) const {
  const std::lock_guard lock(mutex_);
  return counts_[static_cast<size_t>(kind)];
}

int64_t Ledger::copied_bytes() const {
  const std::lock_guard lock(mutex_);
  return copied_bytes_;
}

int64_t Ledger::peak_total_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_total_bytes_;
}

void Ledger::reset_peaks() {
  const std::lock_guard lock(mutex_);
  for (Count& count : counts_) count.peak_bytes = count.current_bytes;
  disk_.peak_bytes = disk_.current_bytes;
  device_.peak_bytes = device_.current_bytes;
  copied_bytes_ = 0;
}

void Ledger::assert_balanced() const {
  const std::lock_guard lock(mutex_);
  int64_t by_kind = 0;
  for (const Count& count : counts_) by_kind += count.current_bytes;
  if (by_kind != allocator_bytes_) {
    throw std::logic_error("Ledger: the kinds sum to " + std::to_string(by_kind) +
                           " bytes, the allocator has handed out " + std::to_string(allocator_bytes_));
  }
}

}  // namespace kv::memory
