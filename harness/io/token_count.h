// Numbers of tokens as people write them: 131072, or 128K; 1M is 1024 K.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kv::io {

// Nothing where the text is no such number, or one beyond 2^62.
std::optional<int64_t> parse_token_count(std::string_view text);
// 131072 as "131,072".
std::string grouped(int64_t n);

}  // namespace kv::io
