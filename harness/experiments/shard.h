// Shards: stable subsets of a sweep's points, so that several machines share one run.
//
// A point and everything it is compared with (baseline, A/A test, measured ceilings) are in one shard. A hash of the
// point's own key chooses it, not the point's place in the config. Points are assigned from the longest on, each to
// the shard that its hash ranks first among those that are not full; full is a little more than an equal part of the
// time. (Rendezvous hashing: Thaler and Ravishankar 1998; with bounded loads: Mirrokni, Thorup and Zadimoghaddam
// 2018.)
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/measure/sweep_point.h"

namespace kv::experiments {

struct Shard {
  int index = 1, of = 1;  // index from 1 to of; 1 of 1 is the whole sweep
  std::string text() const { return std::to_string(index) + "/" + std::to_string(of); }
};

inline constexpr int kMostShards = 100000;

// "2/4". Throws std::invalid_argument.
Shard parse_shard(const std::string& text);

// Distinguishes a sweep point from all others of its sweep, regardless of its variants.
std::string point_key(const measure::SweepPoint& point);

struct WeighedPoint {
  std::string key;
  double weight;  // estimated time, in any unit
};

// The shard of each point, from 1 to `shards`.
std::vector<int> assign_shards(std::span<const WeighedPoint> points, int shards);
std::vector<int> assign_shards(std::span<const measure::SweepPoint> points, int shards);

// Keeps only the shard's points.
void keep_shard(const Shard& shard, std::vector<measure::SweepPoint>& points);

}  // namespace kv::experiments
