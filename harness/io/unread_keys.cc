#include "harness/io/unread_keys.h"

#include <fnmatch.h>

#include <sstream>

#include "harness/io/json.h"
#include "harness/io/paths.h"

namespace kv::io {

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
