// Reads the axes and keys of [sweep], [measure] and an experiment's own table.
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

// Overrides the shared axes that the section has. Throws std::invalid_argument.
void read_axes(Section& section, Axes& axes, const Catalog& catalog);

// Reads every experiment's keys that this shared table may hold.
void read_shared_keys(Section& section, SharedTable table, const Catalog& catalog, Settings& settings);

// Reads the experiment's keys in its own table.
void read_own_keys(Section& own, const ExperimentInfo& experiment, Settings& settings);

// Throws std::invalid_argument if the experiment's own table has an unread key of another experiment.
void refuse_foreign_keys(const Section& own, const ExperimentInfo& experiment, const Catalog& catalog);

// Throws for a value that comes twice, which would give two cells one name.
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
