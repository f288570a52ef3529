#include "harness/io/request_trace.h"

#include <csv.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "harness/io/json.h"
#include "harness/io/text.h"

namespace kv::io {
namespace {

constexpr int64_t kMooncakeBlock = 512, kBailianBlock = 16;  // tokens an id stands for

std::optional<double> whole_number(const std::string& text) {
  double value = 0.0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && at == end ? std::optional(value) : std::nullopt;
}

// Seconds, from a number of them or from "2023-11-16 18:17:03.9799600", with a zone "+00:00" or without.
std::optional<double> seconds(const std::string& text) {
  if (const auto number = whole_number(text)) return std::isfinite(*number) ? number : std::nullopt;
  int year = 0, hour = 0, minute = 0, used = 0;
  unsigned month = 0, day = 0;
  if (std::sscanf(text.c_str(), "%4d-%2u-%2u%*1[ T]%2d:%2d:%n", &year, &month, &day, &hour, &minute, &used) !=
          5 ||
      used == 0)
    return {};
  std::string rest = text.substr(static_cast<size_t>(used));
  if (const size_t zone = rest.find("+00:00"); zone != std::string::npos && zone + 6 == rest.size())
    rest.erase(zone);
  const auto second = whole_number(rest);
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month),
                                         std::chrono::day(day)};
  if (!second || !(*second >= 0 && *second < 61) || !date.ok() || hour < 0 || hour > 23 || minute < 0 ||
      minute > 59)
    return {};
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return (static_cast<double>(days) * 24 + hour) * 3600 + minute * 60 + *second;
}

}  // namespace

RequestTrace::RequestTrace(const std::string& path)
    : path_(path), json_(path.ends_with(".jsonl") || path.ends_with(".json")), file_(path) {
  if (!file_) throw std::invalid_argument("cannot read " + path);
  if (!json_) read_header();
  if (!path.ends_with(".json")) return;
  const bool is_array = (file_ >> std::ws).peek() == '[';
  file_.clear();
  file_.seekg(0);
  if (is_array) array_ = parse_json(std::string(std::istreambuf_iterator<char>(file_), {}), path);
}

void RequestTrace::refuse(const std::string& what) const {
  throw std::invalid_argument(place() + ": " + what);
}

// One line of CSV, whose quotation marks must be closed on it.
std::vector<std::string> RequestTrace::fields(const std::string& line) const {
  struct Parse {
    std::vector<std::string> fields;
    int records = 0;
  } parse;
  csv_parser parser;
  csv_init(&parser, CSV_STRICT);
  const auto field = [](void* value, size_t n, void* p) {
    static_cast<Parse*>(p)->fields.emplace_back(static_cast<const char*>(value), n);
  };
  const auto record = [](int, void* p) { ++static_cast<Parse*>(p)->records; };
  const std::string text = line + "\n";
  const bool good = csv_parse(&parser, text.data(), text.size(), field, record, &parse) == text.size();
  csv_free(&parser);
  if (!good || parse.records != 1) refuse("not a line of CSV");
  return std::move(parse.fields);
}

void RequestTrace::read_header() {
  std::string line;
  line_ = 1;
  if (!std::getline(file_, line)) return;
  line = without_byte_order_mark(line);
  const std::vector<std::string> names = fields(line);
  const auto find = [&](const char* name) {
    return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  };
  constexpr const char* kKnown[][3] = {{"TIMESTAMP", "ContextTokens", "GeneratedTokens"},
                                       {"Timestamp", "Request tokens", "Response tokens"}};
  for (const auto& known : kKnown) {
    columns_ = {names.size(), find(known[0]), find(known[1]), find(known[2])};
    if (std::max({columns_.time, columns_.prompt, columns_.output}) < names.size()) return;
  }
  throw std::invalid_argument(path_ +
                              ": its columns are not TIMESTAMP,ContextTokens,GeneratedTokens (Azure), nor "
                              "Timestamp, Request tokens and Response tokens (BurstGPT)");
}

int64_t RequestTrace::tokens(double count) const {
  const bool whole = count == std::floor(count);
  if (whole && count >= 0 && count <= static_cast<double>(kMostRequestTokens))
    return static_cast<int64_t>(count);
  std::ostringstream text;
  text << count << " tokens; expected whole numbers from 0 to " << kMostRequestTokens
       << " for the prompt and the answer";
  refuse(text.str());
}

double RequestTrace::read_csv(const std::string& line, Request& request) const {
  const std::vector<std::string> values = fields(line);
  if (values.size() != columns_.count)
    refuse(std::to_string(values.size()) + " fields instead of " + std::to_string(columns_.count));
  const auto prompt = whole_number(values[columns_.prompt]), output = whole_number(values[columns_.output]);
  if (!prompt || !output) refuse("the tokens of its prompt and of its answer must be numbers");
  request.prompt_tokens = tokens(*prompt);
  request.output_tokens = tokens(*output);
  const auto time = seconds(values[columns_.time]);
  if (!time) refuse("its time is neither seconds nor a date such as 2023-11-16 18:17:03.97");
  return *time;
}

// A chat goes on from its parent, and all of one line of them are a session.
int64_t RequestTrace::session_of(int64_t chat, int64_t parent) {
  const auto before = sessions_.find(parent);
  return sessions_.try_emplace(chat, before == sessions_.end() ? chat : before->second).first->second;
}

double RequestTrace::read_json(const nlohmann::json& value, Request& request) {
  try {
    for (const char* key : {"timestamp", "input_length", "output_length"})
      if (value.is_object() && !value.contains(key))
        refuse("'" + std::string(key) + "' is missing; expected timestamp, input_length and output_length");
    request.prompt_tokens = tokens(value.at("input_length").get<double>());
    request.output_tokens = tokens(value.at("output_length").get<double>());
    const bool bailian = value.contains("chat_id");
    request.id_tokens = bailian ? kBailianBlock : kMooncakeBlock;
    if (const auto ids = value.find("hash_ids"); ids != value.end()) ids->get_to(request.prefix_ids);
    const auto count = static_cast<int64_t>(request.prefix_ids.size());
    const int64_t whole = request.prompt_tokens / request.id_tokens;
    const int64_t started = (request.prompt_tokens + request.id_tokens - 1) / request.id_tokens;
    if (count != 0 && count != started && !(bailian && count == whole))
      refuse(std::to_string(count) + " hash_ids for " + std::to_string(request.prompt_tokens) + " tokens; " +
             std::to_string(started) + " blocks of " + std::to_string(request.id_tokens) + " are expected");
    if (bailian) {
      const auto parent = value.find("parent_chat_id");
      request.session = session_of(value["chat_id"].get<int64_t>(),
                                   parent == value.end() ? int64_t{-1} : parent->get<int64_t>());
    }
    const double time = value.at("timestamp").get<double>();
    if (!std::isfinite(time)) refuse("timestamp is not a number");
    return bailian ? time : time / 1e3;
  } catch (const nlohmann::json::exception&) {
    refuse("not a JSON object with timestamp, input_length, output_length and, if any, hash_ids");
  }
}

// False at the end.
bool RequestTrace::next_line(std::string& line) {
  if (!std::getline(file_, line)) return false;
  ++line_;
  if (line_ == 1) line = without_byte_order_mark(line);
  if (is_blank(line)) {
    const std::string rest(std::istreambuf_iterator<char>(file_), {});
    if (is_blank(rest)) return false;
    refuse("a blank line");
  }
  return true;
}

bool RequestTrace::next(Request& request) {
  std::string line;
  const bool in_array = array_.is_array();
  if (in_array ? line_ == static_cast<int64_t>(array_.size()) : !next_line(line)) return false;
  if (in_array) ++line_;
  request.prefix_ids.clear();
  request.id_tokens = 0;
  request.session = -1;
  const double time = in_array ? read_json(array_[static_cast<size_t>(line_ - 1)], request)
                      : json_  ? read_json(parse_json(line, place(), true), request)
                               : read_csv(line, request);
  if (request.prompt_tokens + request.output_tokens == 0) refuse("a request of no tokens");
  if (!started_) first_s_ = last_s_ = time;
  started_ = true;
  if (time < last_s_) refuse("its time is before that of the line above");
  last_s_ = time;
  request.arrival_s = time - first_s_;
  return true;
}

}  // namespace kv::io
