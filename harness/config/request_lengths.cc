#include "harness/config/request_lengths.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "harness/io/bytes.h"
#include "harness/io/paths.h"
#include "harness/io/request_trace.h"
#include "harness/math/random.h"

namespace kv::config {
namespace {

constexpr int64_t kMaxLength = int64_t{1} << 24;

[[noreturn]] void refuse(const std::string& text, const std::string& what) {
  throw std::invalid_argument("'" + text + "' " + what);
}

// The text between the brackets of `name(…)`; empty for another form.
std::string argument(const std::string& text, const std::string& name) {
  if (text.rfind(name + "(", 0) != 0 || text.back() != ')') return "";
  return text.substr(name.size() + 1, text.size() - name.size() - 2);
}

std::vector<int64_t> numbers(const std::string& text, const std::string& list) {
  std::vector<int64_t> values;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    std::string_view item = std::string_view(list).substr(at, comma - at);
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    const std::optional<int64_t> value = io::parse_token_count(item);
    if (!value || *value < 1 || *value > kMaxLength) {
      refuse(text, "must have lengths from 1 to " + std::to_string(kMaxLength) +
                       ", separated by commas: a list such as 16,32,500 or 1K,128K, uniform(16,512), "
                       "zipf(16,4096), trace(FILE)");
    }
    values.push_back(*value);
    at = comma + 1;
  }
  return values;
}

struct Bounds {
  int64_t min, max;
};
Bounds bounds(const std::string& text, const std::string& list) {
  const std::vector<int64_t> values = numbers(text, list);
  if (values.size() != 2 || values[0] > values[1]) refuse(text, "needs two lengths, the smaller one first");
  return {values[0], values[1]};
}

// A length whose logarithm is uniform, rounded down, is l with probability proportional to log(1 + 1 / l).
int64_t log_uniform(const Bounds& b, double u) {
  const double low = static_cast<double>(b.min), high = static_cast<double>(b.max) + 1.0;
  return std::min(static_cast<int64_t>(low * std::pow(high / low, u)), b.max);
}

std::vector<int64_t> read_trace(const std::string& name) {
  const std::string path = io::find_input(name, "trace").string();
  std::vector<int64_t> lengths;
  io::RequestTrace trace(path);
  for (io::Request request; trace.next(request);) {
    lengths.push_back(request.prompt_tokens + request.output_tokens);
    if (lengths.back() > kMaxLength)
      throw std::invalid_argument(path + ": has a request of " + std::to_string(lengths.back()) + " tokens");
  }
  if (lengths.empty()) throw std::invalid_argument(path + ": has no requests");
  return lengths;
}

}  // namespace

bool is_length_list(const std::string& text) { return text.find('(') == std::string::npos; }

void check_lengths(const std::string& text) {
  if (!argument(text, "trace").empty()) return;
  for (const char* name : {"uniform", "zipf"}) {
    if (const std::string list = argument(text, name); !list.empty()) {
      bounds(text, list);
      return;
    }
  }
  numbers(text, text);
}

std::vector<int64_t> draw_lengths(const std::string& text, int sequences, uint64_t seed) {
  check_lengths(text);
  if (is_length_list(text)) return numbers(text, text);
  const uint64_t key = math::random::key({seed, 0x6c656e67746873});  // "lengths"
  std::vector<int64_t> lengths;
  if (const std::string path = argument(text, "trace"); !path.empty()) {
    const std::vector<int64_t> all = read_trace(path);
    const uint64_t start = math::random::below(key, 0, all.size());
    for (int i = 0; i < sequences; ++i)
      lengths.push_back(all[(start + static_cast<uint64_t>(i)) % all.size()]);
    return lengths;
  }
  const std::string uniform = argument(text, "uniform");
  const Bounds b = bounds(text, uniform.empty() ? argument(text, "zipf") : uniform);
  for (uint64_t i = 0; i < static_cast<uint64_t>(sequences); ++i) {
    lengths.push_back(uniform.empty() ? log_uniform(b, math::random::uniform(key, i))
                                      : b.min + static_cast<int64_t>(math::random::below(
                                                    key, i, static_cast<uint64_t>(b.max - b.min + 1))));
  }
  return lengths;
}

}  // namespace kv::config
