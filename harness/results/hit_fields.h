// A point of a hit-rate curve: of a trace's blocks, a row of the plan's table of hits and of hits.csv.
#pragma once

#include <vector>

#include "harness/results/schema.h"

namespace kv::results {

struct HitPoint {
  Integer block_tokens, capacity_blocks;
  Number hit_rate, belady_hit_rate, hit_rate_at_any;
};

template <class Row>
std::vector<Field<Row>> hit_fields() {
  return {{"block_tokens", "tokens", &Row::block_tokens, "of a block of the prefix cache"},
          {"capacity_blocks", "", &Row::capacity_blocks, "blocks that it holds"},
          {"hit_rate", "1", &Row::hit_rate,
           "blocks of prompts found / all, where the least recently used goes; computed, requests one after "
           "another"},
          {"belady_hit_rate", "1", &Row::belady_hit_rate,
           "where what is used again last goes, or is not taken at all: no policy finds more"},
          {"hit_rate_at_any", "1", &Row::hit_rate_at_any,
           "in a cache without limit: (blocks - distinct) / blocks"}};
}

}  // namespace kv::results
