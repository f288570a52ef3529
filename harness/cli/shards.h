// `kvlab run --list-shards`: which sweep points each shard would measure.
#pragma once

#include <string>

#include "harness/config/config.h"

namespace kv::cli {

// A line a point: its shard, estimated time and name; then a line a shard. Throws as run_config.
std::string shards_listing(const config::Config& config, int shards);

}  // namespace kv::cli
