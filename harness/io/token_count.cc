#include "harness/io/token_count.h"

#include <charconv>

namespace kv::io {

std::optional<int64_t> parse_token_count(std::string_view text) {
  int64_t unit = 1;
  if (!text.empty() && (text.back() == 'K' || text.back() == 'k')) unit = int64_t{1} << 10;
  if (!text.empty() && (text.back() == 'M' || text.back() == 'm')) unit = int64_t{1} << 20;
  if (unit > 1) text.remove_suffix(1);
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const int64_t most = (int64_t{1} << 62) / unit;
  if (error != std::errc() || end != text.data() + text.size() || count > most || count < -most) return {};
  return count * unit;
}

std::string grouped(int64_t n) {
  std::string digits = std::to_string(n);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

}  // namespace kv::io
