#include "harness/cli/examples.h"

namespace kv::cli {

std::string examples_of(std::string_view command) {
  std::string text;
  for (const Example& example : kExamples) {
    if (example.command == command) text += "\n  " + std::string(example.line);
  }
  return text.empty() ? text : "Examples:" + text;
}

}  // namespace kv::cli
