// The ledger is what every memory figure rests on: its sums, peaks, limit and copy count, also under threads.
#include "harness/memory/ledger.h"

#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace kv {
namespace {

TEST(Ledger, CountsEachKindApart) {
  memory::Ledger ledger;
  Block payload(ledger, 1000, ByteKind::kPayload);
  Block metadata(ledger, 24, ByteKind::kMetadata);
  { Block workspace(ledger, 300, ByteKind::kWorkspace); }
  EXPECT_EQ(ledger.payload().current_bytes, 1000);
  EXPECT_EQ(ledger.metadata().current_bytes, 24);
  EXPECT_EQ(ledger.workspace().current_bytes, 0);
  EXPECT_EQ(ledger.workspace().peak_bytes, 300);
  EXPECT_EQ(ledger.workspace().allocations, 1);
  EXPECT_EQ(ledger.peak_total_bytes(), 1324);
  ledger.assert_balanced();
}

TEST(Ledger, PeakOfTheTotalIsNotTheSumOfPeaks) {
  memory::Ledger ledger;
  { Block first(ledger, 500, ByteKind::kPayload); }
  { Block second(ledger, 700, ByteKind::kWorkspace); }
  EXPECT_EQ(ledger.payload().peak_bytes, 500);
  EXPECT_EQ(ledger.workspace().peak_bytes, 700);
  EXPECT_EQ(ledger.peak_total_bytes(), 700);
}

TEST(Ledger, SmallerBlocksLeaveThePeakWhereItWas) {
  memory::Ledger ledger;
  { Block large(ledger, 500, ByteKind::kPayload); }
  { Block small(ledger, 100, ByteKind::kPayload); }
  EXPECT_EQ(ledger.payload().peak_bytes, 500);
  EXPECT_EQ(ledger.peak_total_bytes(), 500);
}

TEST(Ledger, HandsOutAlignedWritableBlocks) {
  memory::Ledger ledger;
  for (size_t bytes : {1, 63, 64, 65, 4097, 1 << 20}) {
    Block block(ledger, bytes, ByteKind::kPayload);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data()) % 64, 0u) << bytes;
    std::memset(block.data(), 0xff, bytes);
  }
  ledger.assert_balanced();
}

TEST(Ledger, MovedBlocksAreCountedOnce) {
  memory::Ledger ledger;
  Block a(ledger, 128, ByteKind::kPayload);
  Block b = std::move(a);
  EXPECT_EQ(ledger.payload().current_bytes, 128);
  b = Block(ledger, 256, ByteKind::kPayload);
  EXPECT_EQ(ledger.payload().current_bytes, 256);
  EXPECT_EQ(ledger.payload().peak_bytes, 384) << "both blocks are alive while one replaces the other";
}

TEST(Ledger, LimitIsExactAndARefusalLeavesNoTrace) {
  memory::Ledger ledger(100);
  Block block(ledger, 60, ByteKind::kPayload);
  EXPECT_THROW(ledger.allocate(41, ByteKind::kMetadata), std::bad_alloc);
  EXPECT_EQ(ledger.metadata().allocations, 0);
  EXPECT_EQ(ledger.peak_total_bytes(), 60);
  Block rest(ledger, 40, ByteKind::kMetadata);
  EXPECT_THROW(ledger.allocate(1, ByteKind::kMetadata), std::bad_alloc);
  ledger.assert_balanced();
}

TEST(Ledger, AbsurdSizesAreBadAllocs) {
  memory::Ledger ledger;
  EXPECT_THROW(ledger.allocate(SIZE_MAX, ByteKind::kPayload), std::bad_alloc);
  EXPECT_THROW(ledger.allocate(PTRDIFF_MAX, ByteKind::kPayload), std::bad_alloc);
  EXPECT_THROW(ledger.allocate(0, ByteKind::kPayload), std::logic_error);
  EXPECT_EQ(ledger.peak_total_bytes(), 0);
}

TEST(Ledger, ChargesCopies) {
  memory::Ledger ledger;
  Block from(ledger, 16, ByteKind::kPayload);
  Block to(ledger, 16, ByteKind::kPayload);
  std::memset(from.data(), 7, 16);
  ledger.copy(to.data(), from.data(), 16);
  ledger.copy(nullptr, nullptr, 0);
  EXPECT_EQ(ledger.copied_bytes(), 16);
  EXPECT_EQ(std::memcmp(from.data(), to.data(), 16), 0);
}

TEST(Ledger, KnowsTheTierOfEachByte) {
  memory::Ledger ledger;
  Block hot(ledger, 64, ByteKind::kPayload);
  Block warm = Block::of_rows(ledger, 128, ByteKind::kPayload, Tier::kWarm);
  Block scales = Block::of_rows(ledger, 16, ByteKind::kMetadata, Tier::kWarm);
  Block buffer = Block::of_rows(ledger, 256, ByteKind::kWorkspace, Tier::kWarm);
  ledger.count_disk(4096);
  EXPECT_EQ(ledger.tiers(), (TierBytes{.hot = 64, .warm = 144, .disk = 4096}));
  EXPECT_EQ(ledger.tier_at(hot.data()), Tier::kHot);
  EXPECT_EQ(ledger.tier_at(hot.data() + 63), Tier::kHot);
  EXPECT_EQ(ledger.tier_at(warm.data() + 127), Tier::kWarm);
  EXPECT_EQ(ledger.tier_at(scales.data()), Tier::kWarm);
  EXPECT_EQ(ledger.tier_at(buffer.data()), std::nullopt);  // workspace is no tier
  std::byte stranger{};
  EXPECT_EQ(ledger.tier_at(&stranger), std::nullopt);
  const std::byte* gone = warm.data();
  warm = Block();
  EXPECT_EQ(ledger.tier_at(gone), std::nullopt);
  EXPECT_EQ(ledger.tiers(), (TierBytes{.hot = 64, .warm = 16, .disk = 4096}));
}

TEST(Ledger, CountsReadsOfFiles) {
  memory::Ledger ledger;
  ledger.count_disk_read(4096, 0.5);
  ledger.count_disk_read(8192, 0.25);
  EXPECT_EQ(ledger.disk_reads().bytes, 12288);
  EXPECT_EQ(ledger.disk_reads().requests, 2);
  EXPECT_DOUBLE_EQ(ledger.disk_reads().seconds, 0.75);
}

TEST(Ledger, ResetStartsThePeaksFromWhatIsHeld) {
  memory::Ledger ledger;
  Block held(ledger, 10, ByteKind::kPayload);
  { Block gone(ledger, 90, ByteKind::kPayload); }
  ledger.copy(held.data(), held.data() + 5, 5);
  ledger.reset_peaks();
  EXPECT_EQ(ledger.payload().peak_bytes, 10);
  EXPECT_EQ(ledger.peak_total_bytes(), 100) << "what filling a cache took stays a part of its peak";
  EXPECT_EQ(ledger.copied_bytes(), 0);
  EXPECT_EQ(ledger.payload().current_bytes, 10);
}

TEST(Ledger, FreesWhatIsStillHeld) {  // the leak checker of the asan preset is the judge
  memory::Ledger ledger;
  ledger.allocate(1000, ByteKind::kPayload);
  EXPECT_EQ(ledger.payload().current_bytes, 1000);
}

TEST(LedgerDeathTest, ReleasingWhatIsNotHeldAborts) {
  memory::Ledger ledger;
  std::byte stranger{};
  EXPECT_DEATH(ledger.release(&stranger), "is not held");
}

TEST(Ledger, ThreadsKeepItBalanced) {
  memory::Ledger ledger;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&ledger, t] {
      for (size_t i = 1; i <= 500; ++i) {
        Block a(ledger, i, ByteKind::kPayload);
        Block b(ledger, i * static_cast<size_t>(t + 1), ByteKind::kWorkspace);
        ledger.copy(b.data(), a.data(), i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ledger.assert_balanced();
  EXPECT_EQ(ledger.payload().current_bytes, 0);
  EXPECT_EQ(ledger.payload().allocations, 2000);
  EXPECT_EQ(ledger.copied_bytes(), 4 * 500 * 501 / 2);
}

}  // namespace
}  // namespace kv
