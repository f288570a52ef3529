// The message of a refusal.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace kv {

// Empty if nothing is refused.
template <class Error = std::invalid_argument, class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

namespace test {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A refusal's one line; a failure if nothing is refused.
template <class Call>
std::string refusal(Call call) {
  const std::string message = message_of(call);
  EXPECT_NE(message, "") << "nothing was refused";
  EXPECT_FALSE(contains(message, "\n")) << message;
  return message;
}

}  // namespace test
}  // namespace kv
