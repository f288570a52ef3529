#include "harness/config/request_lengths.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "harness/io/csv.h"
#include "harness/io/json.h"
#include "harness/io/mapped_file.h"
#include "harness/io/paths.h"
#include "harness/io/token_count.h"
#include "harness/math/random.h"

namespace kv::config {
namespace {

constexpr int64_t kMaxLength = int64_t{1} << 24;
const io::CsvRecord kAzureColumns{"TIMESTAMP", "ContextTokens", "GeneratedTokens"};

[[noreturn]] void refuse(const std::string& text, const std::string& what) {
  throw std::invalid_argument("'" + text + "' " + what);
}

// The text between the brackets of `name(…)`; empty where it is not of that form.
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
      refuse(text, "must hold lengths from 1 to " + std::to_string(kMaxLength) +
                       ", separated by commas; known: a list as in 16,32,500 or 1K,128K, uniform(16,512), "
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

// Rounded down, a length whose logarithm is uniform falls on l with the share log(1 + 1 / l).
int64_t log_uniform(const Bounds& b, double u) {
  const double low = static_cast<double>(b.min), high = static_cast<double>(b.max) + 1.0;
  return std::min(static_cast<int64_t>(low * std::pow(high / low, u)), b.max);
}

std::optional<double> number_in(const std::string& field) {
  double value = 0.0;
  const char* end = field.data() + field.size();
  const auto [at, error] = std::from_chars(field.data(), end, value);
  return error == std::errc() && at == end ? std::optional(value) : std::nullopt;
}

// Prompt and answer together, each checked for itself: -5 and 10 are not a request of 5 tokens.
int64_t request_length(const std::string& path, size_t line, double prompt, double answer) {
  for (const double tokens : {prompt, answer}) {
    if (tokens >= 0 && tokens <= kMaxLength) continue;
    std::ostringstream text;
    text << path << ":" << line << ": " << tokens << " tokens; a request has 0 to " << kMaxLength
         << " in its prompt and in its answer";
    throw std::invalid_argument(text.str());
  }
  return static_cast<int64_t>(prompt + answer);
}

std::vector<int64_t> read_azure(const std::string& path) {
  std::vector<int64_t> lengths;
  const io::CsvTable table = io::read_csv(path, io::LastLine::kWhole);
  if (!table.header.empty() && table.header != kAzureColumns)
    throw std::invalid_argument(path + ": its columns are not TIMESTAMP,ContextTokens,GeneratedTokens");
  for (const io::CsvRecord& request : table.records) {
    const auto prompt = number_in(request[1]), answer = number_in(request[2]);
    if (!prompt || !answer)
      throw std::invalid_argument(path + ":" + std::to_string(lengths.size() + 2) +
                                  ": ContextTokens and GeneratedTokens must be numbers");
    lengths.push_back(request_length(path, lengths.size() + 2, *prompt, *answer));
  }
  return lengths;
}

std::vector<int64_t> read_mooncake(const std::string& path) {
  std::vector<int64_t> lengths;
  std::istringstream file(io::read_text(path));
  for (std::string line; std::getline(file, line);) {
    try {
      const nlohmann::json request = io::parse_json(line, path + ":" + std::to_string(lengths.size() + 1));
      lengths.push_back(request_length(path, lengths.size() + 1, request.at("input_length").get<double>(),
                                       request.at("output_length").get<double>()));
    } catch (const nlohmann::json::exception&) {
      throw std::invalid_argument(path + ":" + std::to_string(lengths.size() + 1) +
                                  ": not a JSON object with input_length and output_length");
    }
  }
  return lengths;
}

std::vector<int64_t> read_trace(const std::string& name) {
  const std::string path = io::find_input(name, "trace").string();
  std::vector<int64_t> lengths = path.ends_with(".jsonl") ? read_mooncake(path) : read_azure(path);
  if (lengths.empty()) throw std::invalid_argument(path + ": holds no request");
  for (const int64_t length : lengths) {
    if (length < 1 || length > kMaxLength)
      throw std::invalid_argument(path + ": holds a request of " + std::to_string(length) + " tokens");
  }
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
