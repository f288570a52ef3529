// Reads the axes of [sweep] and of an experiment's own table, and says where a key belongs that is elsewhere.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "harness/config/config.h"
#include "harness/config/section.h"

namespace kv::config {

inline constexpr int64_t kMaxTokens = int64_t{1} << 24;

// Overrides those of `axes` that the section has. Throws std::invalid_argument.
void read_axes(Section& section, Axes& axes, const Catalog& catalog);

// Throws std::invalid_argument if the experiment's own table has an axis of another experiment.
void refuse_foreign_axes(Section& own, const ExperimentInfo& experiment, const Catalog& catalog);

// The table that a key belongs in, for messages: "[model]", "[sweep] …"; empty for a key of none.
std::string table_of(std::string_view key);

// A value that comes twice would be two cells of one name.
template <class Value>
void refuse_repeats(const Section& section, const std::string& key, std::vector<Value> values) {
  std::sort(values.begin(), values.end());
  const auto twice = std::adjacent_find(values.begin(), values.end());
  if (twice == values.end()) return;
  std::ostringstream value;
  value << *twice;
  section.fail(key, "names " + value.str() + " twice");
}

}  // namespace kv::config
