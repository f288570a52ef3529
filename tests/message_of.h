// The message of a refusal.
#pragma once

#include <stdexcept>
#include <string>

namespace kv {

// Empty if nothing is refused.
template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

}  // namespace kv
