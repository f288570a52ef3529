// Blocks cut from huge pages.
//
// A cache's rows are read as fast as memory delivers them only where they lie in huge pages: with pages of
// 4 KiB the translation of addresses, and prefetchers that stop at each page's end, cost up to half of the
// speed. The system gives huge pages to large blocks alone. If caches were to get what they ask for, a
// segment of 256 rows would lie in small pages and a pre-allocated cache in huge ones, and a comparison of
// the two would compare pages.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace kv {

// Takes regions from the system, and keeps them: a freed block's pages serve the next one, as they are.
class HugePages {
 public:
  HugePages() = default;
  HugePages(const HugePages&) = delete;
  HugePages& operator=(const HugePages&) = delete;
  ~HugePages();

  // `bytes` (> 0), aligned to 4096; null if the system has none. Pages are left untouched: whoever writes
  // first faults them in. Where the system has no huge pages to give, they are small.
  std::byte* take(size_t bytes);
  void give_back(std::byte* block, size_t bytes);

 private:
  bool add_region(size_t bytes);
  void add_free(std::byte* block, size_t bytes);  // joins it with its neighbours
  void remove_free(std::byte* block, size_t bytes);

  std::mutex mutex_;
  std::map<std::byte*, size_t> free_;                // by address
  std::set<std::pair<size_t, std::byte*>> by_size_;  // the same
  std::map<std::byte*, size_t> regions_;
};

// What every Ledger made from now on takes blocks of 4096 bytes and more from; null, as at first, is malloc,
// under whose eyes sanitizers see a write beyond a block's end.
void share_huge_pages(HugePages* pages);
HugePages* shared_huge_pages();

}  // namespace kv
