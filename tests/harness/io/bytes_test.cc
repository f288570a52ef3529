#include "harness/io/bytes.h"

#include <gtest/gtest.h>

#include "tests/message_of.h"

namespace kv {
namespace {

TEST(Bytes, ThreeDigitsAndTheUnit) {
  const auto binary = [](int64_t bytes) { return io::human_bytes(bytes, io::Units::kBinary); };
  const auto decimal = [](int64_t bytes) { return io::human_bytes(bytes, io::Units::kDecimal); };
  EXPECT_EQ(binary(0), "0 B");
  EXPECT_EQ(binary(1023), "1023 B");
  EXPECT_EQ(binary(1024), "1.00 KiB");
  EXPECT_EQ(binary(int64_t{68} << 20), "68.0 MiB");
  EXPECT_EQ(binary(int64_t{1} << 39), "512 GiB");
  EXPECT_EQ(binary((int64_t{1} << 30) - 1), "1.00 GiB");  // rounded up into the next unit
  EXPECT_EQ(binary(10235), "10.0 KiB");                   // and into the next digit
  EXPECT_EQ(decimal(70272), "70.3 kB");
  EXPECT_EQ(decimal(999), "999 B");
  EXPECT_EQ(decimal(1000), "1.00 kB");
  EXPECT_EQ(decimal(int64_t{1} << 30), "1.07 GB");
  EXPECT_EQ(decimal(2'000'000'000'000'000'000), "2000 PB");
}

TEST(Bytes, AUnitMeansWhatItSays) {
  EXPECT_EQ(io::parse_bytes("16GiB", "--budget"), int64_t{16} << 30);
  EXPECT_EQ(io::parse_bytes("16GB", "--budget"), 16'000'000'000);
  EXPECT_EQ(io::parse_bytes("13.5 GB", "--weights"), 13'500'000'000);
  EXPECT_EQ(io::parse_bytes("0B", "--weights"), 0);
  EXPECT_EQ(io::parse_bytes("1.5KiB", "x"), 1536);
  EXPECT_EQ(io::parse_bytes("2kB", "x"), 2000);
  EXPECT_EQ(io::parse_bytes("2KB", "x"), 2000);
  for (const char* text :
       {"", "16", "16G", "16 gib", "GiB", "-1GiB", "nanGiB", "infGB", "16GiBs", "1e30GB", "0x10GB", " 1GB"}) {
    const std::string said = message_of([&] { io::parse_bytes(text, "--budget"); });
    EXPECT_TRUE(said.starts_with("--budget: '" + std::string(text) + "' ")) << said;
  }
}

}  // namespace
}  // namespace kv
