#include "harness/io/json.h"

#include <stdexcept>

#include "harness/io/text.h"

namespace kv::io {

using nlohmann::json;

json parse_json(std::string_view text, const std::string& place) {
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
  return json::parse(text, check, false);
}

std::string json_text(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

std::string shown(const json& value) {
  constexpr size_t kMost = 80;
  return shortened(json_text(value), kMost);
}

}  // namespace kv::io
