// Blocks cut from huge pages: they never overlap, and what is given back serves again, whole.
#include "harness/huge_pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "harness/ledger.h"

namespace kv {
namespace {

constexpr size_t kRegion = size_t{64} << 20;

struct Held {
  std::byte* block;
  size_t bytes;
  uint8_t mark;
};

bool is_intact(const Held& held) {
  const std::byte mark{held.mark};
  for (size_t i = 0; i < held.bytes; ++i) {
    if (held.block[i] != mark) return false;
  }
  return true;
}

TEST(HugePages, BlocksInAnyOrderKeepWhatIsWrittenToThem) {
  HugePages pages;
  std::mt19937 rng(1);
  std::vector<Held> held;
  for (int i = 0; i < 2000; ++i) {
    if (held.size() > 20 || (!held.empty() && rng() % 2)) {
      const size_t at = rng() % held.size();
      ASSERT_TRUE(is_intact(held[at])) << "block " << i;
      pages.give_back(held[at].block, held[at].bytes);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
      continue;
    }
    const size_t bytes = 1 + rng() % (rng() % 4 ? 20'000 : 1'000'000);
    held.push_back({pages.take(bytes), bytes, static_cast<uint8_t>(rng())});
    ASSERT_NE(held.back().block, nullptr);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(held.back().block) % 4096, 0u);
    std::memset(held.back().block, held.back().mark, bytes);
  }
}

TEST(HugePages, FreedNeighboursJoin) {
  HugePages pages;
  std::byte* whole = pages.take(kRegion);
  pages.give_back(whole, kRegion);
  std::byte *a = pages.take(5000), *b = pages.take(kRegion / 2), *c = pages.take(4096);
  for (const auto& [block, bytes] : {std::pair{a, 5000}, {c, 4096}})
    pages.give_back(block, static_cast<size_t>(bytes));
  pages.give_back(b, kRegion / 2);
  EXPECT_EQ(pages.take(kRegion), whole);
}

TEST(HugePages, LargeBlocksGetARegionOfTheirOwn) {
  HugePages pages;
  std::byte* large = pages.take(3 * kRegion + 1);
  ASSERT_NE(large, nullptr);
  large[3 * kRegion] = std::byte{1};
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large) % (size_t{2} << 20), 0u);
}

TEST(HugePages, NoMemoryIsNull) {
  HugePages pages;
  EXPECT_EQ(pages.take(size_t{1} << 60), nullptr);
  EXPECT_NE(pages.take(1), nullptr);
}

TEST(HugePages, ALedgerTakesItsLargerBlocksFromThem) {
  HugePages pages;
  share_huge_pages(&pages);
  Ledger ledger;
  share_huge_pages(nullptr);
  std::byte *small = nullptr, *first = nullptr;
  {
    const Block little(ledger, 100, ByteKind::kMetadata), block(ledger, 4096, ByteKind::kPayload);
    small = little.data();
    first = block.data();
    EXPECT_EQ(ledger.payload().current_bytes, 4096);
    ledger.assert_balanced();
  }
  EXPECT_EQ(pages.take(4096), first);
  EXPECT_NE(pages.take(4096), small);
  const Block held(ledger, 10'000, ByteKind::kPayload);  // the ledger gives it back when it dies
}

}  // namespace
}  // namespace kv
