// Slots come in their order with their bytes, whatever reads them and however a run ends.
#include "variants/placement/read_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "harness/memory/ledger.h"

namespace kv {
namespace {

constexpr int64_t kPage = SpillFile::kAlignment;

std::byte byte_of(int64_t slot, int64_t at) {
  return static_cast<std::byte>(slot * 31 + at / kPage * 7 + at % 251);
}

// A file whose slots hold bytes of their own.
class Slots {
 public:
  Slots(int64_t slots, int64_t bytes, bool direct = false, double link_gbps = 0)
      : file_(ledger_, std::filesystem::temp_directory_path(), direct, bytes, link_gbps),
        ahead_(ledger_, file_) {
    file_.prepare(slots);
    for (int64_t i = 0; i < slots; ++i) {
      const int64_t slot = file_.take();
      std::vector<std::byte>& written = written_[slot];
      for (int64_t at = 0; at < bytes; ++at) written.push_back(byte_of(slot, at));
      std::copy(written.begin(), written.end(), ahead_.idle_buffer());
      file_.write(slot, ahead_.idle_buffer());
    }
  }

  // In this order; the first `until` of them are looked at.
  void read(const std::vector<int64_t>& slots, size_t until) {
    ReadAhead::Run run(ahead_, slots);
    for (size_t i = 0; i < until; ++i) {
      const std::byte* bytes = run.next();
      const std::vector<std::byte>& written = written_.at(slots[i]);
      ASSERT_TRUE(std::equal(written.begin(), written.end(), bytes))
          << "slot " << slots[i] << ", the " << i << "th";
      run.give_back();
    }
  }
  const memory::Ledger& ledger() const { return ledger_; }

 private:
  memory::Ledger ledger_;
  SpillFile file_;
  ReadAhead ahead_;
  std::map<int64_t, std::vector<std::byte>> written_;  // by slot
};

std::vector<int64_t> in_some_order(int64_t slots, size_t count) {
  std::vector<int64_t> order(count);
  std::mt19937 random(7);
  for (int64_t& slot : order) slot = static_cast<int64_t>(random() % static_cast<uint64_t>(slots));
  return order;
}

TEST(ReadAhead, GivesEachSlotInItsTurn) {
  for (const int64_t bytes :
       {kPage, 64 * kPage, ReadAhead::kMostRequestBytes, 2 * ReadAhead::kMostRequestBytes + kPage}) {
    for (const bool direct : {false, true}) {
      if (direct && !SpillFile::refuses(std::filesystem::temp_directory_path(), true).empty()) continue;
      Slots slots(5, bytes, direct);
      slots.read(in_some_order(5, 40), 40);
      slots.read({}, 0);
      slots.read({3}, 1);
    }
  }
}

TEST(ReadAhead, CountsWhatItRead) {
  Slots slots(4, 10 << 20);
  slots.read({0, 1, 2, 3, 0}, 5);
  const auto reads = slots.ledger().disk_reads();
  EXPECT_EQ(reads.bytes, 5 * (10 << 20));
  EXPECT_EQ(reads.requests, 5 * 3) << "of 4, 4 and 2 MiB";
  EXPECT_GT(reads.seconds, 0);
  EXPECT_GT(slots.ledger().workspace().current_bytes, 0);
}

TEST(ReadAhead, IsOverWhereverItsUserStops) {
  Slots slots(6, 16 * kPage);
  const auto order = in_some_order(6, 30);
  for (size_t until = 0; until < order.size(); ++until) slots.read(order, until);
}

// The kernel refuses a ring of so many entries.
TEST(FileRequests, AreAnsweredWithoutARing) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  std::vector<std::byte> bytes(50'000), got(bytes.size() + 10);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i % 251);
  ASSERT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
  std::fflush(file);
  const auto requests = FileRequests::of(fileno(file), false, 1 << 20);
  requests->submit(7, 30'000, 20'000, got.data() + 30'000);
  requests->submit(9, 0, 30'000, got.data());
  for (const int64_t tag : {7, 9}) {
    const FileRequests::Done done = requests->wait();
    EXPECT_EQ(done.tag, tag);
    EXPECT_TRUE(done.error == 0 && !done.cut);
  }
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), got.begin()));
  requests->submit(1, 49'990, 20, got.data());
  EXPECT_TRUE(requests->wait().cut);
  std::fclose(file);
}

TEST(ReadAhead, ALinkCarriesOneRequestAfterTheOther) {
  constexpr double kGbps = 0.2;
  Slots slots(4, 1 << 20, false, kGbps);
  slots.read({0, 1, 2, 3}, 4);
  const auto reads = slots.ledger().disk_reads();
  EXPECT_GE(reads.seconds, static_cast<double>(reads.bytes) / (kGbps * 1e9));
}

}  // namespace
}  // namespace kv
