// The loop that measures bandwidth reads all of its input, and shares it evenly among threads.
#include "kernels/cpu/ceilings/stream.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/cpu/isa.h"

namespace kv::cpu {
namespace {

std::vector<std::byte> random_bytes(size_t count) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random() & 0xff);
  return bytes;
}

// Byte by byte: byte i of a range counts 256^(i mod 4).
uint64_t slow_sum(std::span<const ByteRange> ranges) {
  uint64_t sum = 0;
  for (const ByteRange& range : ranges) {
    uint32_t words = 0;
    for (size_t i = 0; i < range.bytes; ++i) words += static_cast<uint32_t>(range.data[i]) << (8 * (i % 4));
    sum += words;
  }
  return sum;
}

TEST(ReadRanges, ReadsEveryByteAtAnyAddressAndLength) {
  const std::vector<std::byte> data = random_bytes(70'000);
  std::vector<ByteRange> ranges;
  for (size_t bytes : {1, 3, 4, 5, 18, 63, 64, 65, 255, 256, 257, 1023, 4096, 16'384, 16'385}) {
    ranges.push_back({data.data() + bytes % 7, bytes});
    ranges.push_back({data.data() + data.size() - bytes, bytes});
  }
  for (const std::string& isa : available_isas()) {
    force_isa(isa);
    for (size_t threads : {1, 2, 5}) {
      for (const ReadOrder order : kReadOrders)
        EXPECT_EQ(read_ranges(share_out(ranges, threads), order), slow_sum(ranges)) << isa;
    }
  }
  force_isa("auto");
}

TEST(ShareOut, GivesEachThreadAboutTheSameBytesInOrder) {
  const std::vector<std::byte> data = random_bytes(16);
  std::vector<ByteRange> ranges;
  for (size_t i = 0; i < 1000; ++i) ranges.push_back({data.data(), i % 3 == 0 ? size_t{16} : size_t{2}});
  const size_t bytes = 334 * 16 + 666 * 2;
  for (size_t threads : {1, 2, 3, 7}) {
    const auto parts = share_out(ranges, threads);
    ASSERT_EQ(parts.size(), threads);
    const ByteRange* next = ranges.data();
    for (const std::span<const ByteRange> part : parts) {
      EXPECT_EQ(part.data(), next);
      next += part.size();
      size_t sum = 0;
      for (const ByteRange& range : part) sum += range.bytes;
      EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(bytes) / static_cast<double>(threads), 16.0);
    }
    EXPECT_EQ(next, ranges.data() + ranges.size());
  }
  EXPECT_TRUE(share_out({}, 2)[1].empty());
}

}  // namespace
}  // namespace kv::cpu
