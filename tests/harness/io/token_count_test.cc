#include "harness/io/bytes.h"

#include <gtest/gtest.h>

namespace kv {
namespace {

TEST(TokenCount, IsBinary) {
  EXPECT_EQ(io::parse_token_count("131072"), 131072);
  EXPECT_EQ(io::parse_token_count("128K"), 131072);
  EXPECT_EQ(io::parse_token_count("128k"), 131072);
  EXPECT_EQ(io::parse_token_count("1M"), 1048576);
  EXPECT_EQ(io::parse_token_count("0"), 0);
  EXPECT_EQ(io::parse_token_count("-5"), -5);
}

TEST(TokenCount, IsNothingElse) {
  for (const char* text : {"", "K", "1.5K", "128KB", "128 K", " 8", "8 ", "1e3", "many", "0x10", "+8",
                           "9999999999999M", "99999999999999999999"})
    EXPECT_EQ(io::parse_token_count(text), std::nullopt) << text;
}

}  // namespace
}  // namespace kv
