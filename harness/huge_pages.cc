#include "harness/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

namespace kv {
namespace {

constexpr size_t kPage = 4096, kHugePage = size_t{2} << 20, kRegion = 32 * kHugePage;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

HugePages* shared = nullptr;

}  // namespace

HugePages::~HugePages() {
  for (const auto& [region, bytes] : regions_) munmap(region, bytes);
}

// Of the free blocks that are large enough the smallest, so that large ones stay whole.
std::byte* HugePages::take(size_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes = round_up(bytes, kPage);
  auto best = by_size_.lower_bound({bytes, nullptr});
  if (best == by_size_.end()) {
    if (!add_region(bytes)) return nullptr;
    best = by_size_.lower_bound({bytes, nullptr});
  }
  const auto [whole, block] = *best;
  remove_free(block, whole);
  if (whole > bytes) add_free(block + bytes, whole - bytes);
  return block;
}

void HugePages::give_back(std::byte* block, size_t bytes) {
  const std::lock_guard lock(mutex_);
  add_free(block, round_up(bytes, kPage));
}

bool HugePages::add_region(size_t bytes) {
  bytes = std::max(kRegion, round_up(bytes, kHugePage));
  // A huge page more than that, since the system aligns to small ones; what sticks out is given back.
  void* p = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return false;
  auto* begin = static_cast<std::byte*>(p);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(p) % kHugePage) % kHugePage;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + bytes, kHugePage - before);
  madvise(begin + before, bytes, MADV_HUGEPAGE);  // advice: where it is not taken, small pages
  regions_[begin + before] = bytes;
  add_free(begin + before, bytes);
  return true;
}

void HugePages::add_free(std::byte* block, size_t bytes) {
  auto next = free_.lower_bound(block);
  if (next != free_.end() && block + bytes == next->first) {
    bytes += next->second;
    const auto joined = next++;
    remove_free(joined->first, joined->second);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == block) {
      block = previous->first;
      bytes += previous->second;
      remove_free(previous->first, previous->second);
    }
  }
  free_[block] = bytes;
  by_size_.insert({bytes, block});
}

void HugePages::remove_free(std::byte* block, size_t bytes) {
  free_.erase(block);
  by_size_.erase({bytes, block});
}

void share_huge_pages(HugePages* pages) { shared = pages; }
HugePages* shared_huge_pages() { return shared; }

}  // namespace kv
