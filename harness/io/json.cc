#include "harness/io/json.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "harness/io/mapped_file.h"
#include "harness/io/paths.h"
#include "harness/io/text.h"

namespace kv::io {

using nlohmann::json;

namespace {

constexpr std::array<std::string_view, 3> kPythonNumbers{"-Infinity", "Infinity", "NaN"};

// Quotes what Python writes for numbers that JSON lacks. `quoted`: where, in the answer, each of them ends.
std::string with_quoted_numbers(std::string_view text, std::vector<size_t>& quoted) {
  if (text.find("NaN") == text.npos && text.find("Infinity") == text.npos) return std::string(text);
  std::string out;
  bool in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto* number = in_text ? kPythonNumbers.end()
                                 : std::find_if(kPythonNumbers.begin(), kPythonNumbers.end(),
                                                [&](auto n) { return text.substr(i).starts_with(n); });
    if (number != kPythonNumbers.end()) {
      out += '"' + std::string(*number) + '"';
      i += number->size() - 1;
      quoted.push_back(out.size());
      continue;
    }
    if (text[i] == '"') in_text = !in_text;
    out += text[i];
    if (in_text && text[i] == '\\' && i + 1 < text.size()) out += text[++i];
  }
  return out;
}

// ": line 3, column 7", both from 1, as byte `at` of a text; a place that names a line already needs no other.
std::string position(std::string_view text, size_t at, bool is_line) {
  const std::string_view before = text.substr(0, at > 0 ? at - 1 : 0);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t column = before.size() - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
  return (is_line ? ": " : ": line " + std::to_string(line) + ", ") + "column " + std::to_string(column);
}

// The library's message without its name of the error and its own position.
std::string reason_of(const json::exception& error) {
  const std::string text = error.what();
  const size_t name = text.find("] "), column = text.find(": ", text.find("column "));
  return shortened(text.substr(column == std::string::npos ? name + 2 : column + 2), 200);
}

}  // namespace

json parse_json(std::string_view text, const std::string& place, bool is_line) {
  constexpr int kMostNested = 64;
  const auto check = [&](int depth, json::parse_event_t event, json&) {
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth >= kMostNested) {
      throw std::invalid_argument(place + ": its brackets are nested more than " +
                                  std::to_string(kMostNested) + " deep");
    }
    return true;
  };
  std::vector<size_t> quoted;
  const std::string plain = with_quoted_numbers(text, quoted);
  try {
    return json::parse(plain, check);
  } catch (const json::parse_error& error) {
    const auto before =
        std::count_if(quoted.begin(), quoted.end(), [&](size_t end) { return end <= error.byte; });
    const size_t at = error.byte - 2 * static_cast<size_t>(before);
    throw std::invalid_argument(place + position(text, at, is_line) + ": not JSON: " + reason_of(error));
  } catch (const json::exception& error) {  // a number beyond any double
    throw std::invalid_argument(place + ": " + reason_of(error));
  }
}

json read_json(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return nullptr;
  return parse_json(read_text(path.string()), path.string());
}

json read_json_object(const std::string& path, const std::string& expected) {
  if (!std::filesystem::exists(path))
    throw std::invalid_argument("cannot read " + path + "; expected " + expected);
  json object = parse_json(read_text(path), path);
  if (!object.is_object())
    throw std::invalid_argument(path + ": has a JSON " + object.type_name() + "; expected a JSON object, " +
                                expected);
  return object;
}

std::string text_at(const json& object, const char* pointer) {
  const json::json_pointer field(pointer);
  return object.contains(field) && object[field].is_string() ? object[field].get<std::string>() : "";
}

std::string json_text(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

std::string shown(const json& value) {
  constexpr size_t kMost = 80;
  return shortened(json_text(value), kMost);
}

bool changes_nothing(const std::string& kind, const std::string& name, const std::string& type) {
  static const nlohmann::json table = read_json_object(
      (project_home() / "configs" / "unread_keys.json").string(), "the table of unread keys");
  for (const auto& [reason, names] : table.at(kind).items()) {
    std::istringstream patterns(names.get<std::string>());
    for (std::string pattern; patterns >> pattern;) {
      for (const std::string& stated : {name, type + ":" + name})
        if (fnmatch(pattern.c_str(), stated.c_str(), 0) == 0) return true;
    }
  }
  return false;
}

}  // namespace kv::io
