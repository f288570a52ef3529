// Counts of bytes and tokens as people write and read them. A unit is always named: GiB is 1024^3 bytes, GB is 1000^3.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kv::io {

enum class Units { kBinary, kDecimal };

// Three digits: "512 B", "1.50 KiB", "16.0 GiB"; "1.54 kB", "17.2 GB".
std::string human_bytes(int64_t bytes, Units units = Units::kBinary);

// "16GiB", "13.5 GB", "512 B". Throws std::invalid_argument, naming `option`, where the unit is missing or
// could be either, as in "16G".
int64_t parse_bytes(const std::string& text, const std::string& option);

// Nothing where the text is no such number, or one beyond 2^62.
std::optional<int64_t> parse_token_count(std::string_view text);
// 131072 as "131,072".
std::string grouped(int64_t n);

}  // namespace kv::io
