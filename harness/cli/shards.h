// `kvlab run --list-shards` lists each shard's sweep points.
#pragma once

#include <string>

#include "harness/config/config.h"

namespace kv::cli {

// One line a point: its shard, estimated time and name; then one line a shard. Throws as run_config does.
std::string shards_listing(const config::Config& config, int shards);

}  // namespace kv::cli
