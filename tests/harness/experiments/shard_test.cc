#include "harness/experiments/shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>

namespace kv::experiments {
namespace {

// Lengths from 256 to 64K, in 30 workloads: times from 1 to 256.
std::vector<WeighedPoint> sweep_of(int workloads) {
  std::vector<WeighedPoint> points;
  for (int workload = 0; workload < workloads; ++workload) {
    for (int length = 256; length <= 65536; length *= 2) {
      points.push_back(
          {"decode w" + std::to_string(workload) + " b1 s" + std::to_string(length), length / 256.0});
    }
  }
  return points;
}

std::map<std::string, int> by_key(const std::vector<WeighedPoint>& points, int shards) {
  const std::vector<int> shard_of = assign_shards(points, shards);
  std::map<std::string, int> all;
  for (size_t i = 0; i < points.size(); ++i) all[points[i].key] = shard_of[i];
  return all;
}

int moved(const std::map<std::string, int>& before, const std::map<std::string, int>& after) {
  int count = 0;
  for (const auto& [key, shard] : before) count += after.at(key) != shard;
  return count;
}

TEST(Shard, IsReadAndRefused) {
  EXPECT_EQ(parse_shard("2/4").text(), "2/4");
  EXPECT_EQ(parse_shard("1/1").of, 1);
  for (const char* bad : {"", "2", "0/4", "5/4", "-1/4", "2/", "/4", "2/4/4", "a/b", "2 / 4", "1/100001"}) {
    EXPECT_THROW(parse_shard(bad), std::invalid_argument) << bad;
  }
}

TEST(Shard, EveryPointIsInOneShardWhateverTheOrder) {
  std::vector<WeighedPoint> points = sweep_of(30);
  const std::map<std::string, int> all = by_key(points, 4);
  for (const auto& [key, shard] : all) {
    EXPECT_GE(shard, 1) << key;
    EXPECT_LE(shard, 4) << key;
  }
  std::reverse(points.begin(), points.end());
  EXPECT_EQ(by_key(points, 4), all);
  EXPECT_EQ(by_key(points, 1), by_key(sweep_of(30), 1));
}

// A third more than an equal part is the room; the longest point may be on top.
TEST(Shard, TimesAreBalancedAndLongPointsSpread) {
  const std::vector<WeighedPoint> points = sweep_of(30);
  for (const int shards : {2, 4, 7, 16}) {
    const std::vector<int> shard_of = assign_shards(points, shards);
    std::vector<double> times(static_cast<size_t>(shards)), longest(static_cast<size_t>(shards));
    double total = 0;
    for (size_t i = 0; i < points.size(); ++i) {
      times[static_cast<size_t>(shard_of[i] - 1)] += points[i].weight;
      longest[static_cast<size_t>(shard_of[i] - 1)] += points[i].weight == 256.0;
      total += points[i].weight;
    }
    EXPECT_LE(*std::ranges::max_element(times), 1.34 * total / shards + 256) << shards;
    EXPECT_LE(*std::ranges::max_element(longest), 30.0 * 1.34 / shards + 1) << shards;
    EXPECT_GE(*std::ranges::min_element(longest), 1) << shards;
    EXPECT_EQ(std::accumulate(times.begin(), times.end(), 0.0), total);
  }
}

// By their order every point behind the new one would move: three quarters of all, of 4 shards.
TEST(Shard, AddingPointsMovesFew) {
  const std::vector<WeighedPoint> before = sweep_of(30);
  const std::map<std::string, int> were = by_key(before, 4);
  for (size_t place = 0; place < before.size(); place += 10) {
    std::vector<WeighedPoint> more = before;
    more.insert(more.begin() + static_cast<std::ptrdiff_t>(place),
                {"decode new b1 s" + std::to_string(place), static_cast<double>(1 + place)});
    EXPECT_LE(moved(were, by_key(more, 4)), 27) << place;  // a tenth of 270
  }
  std::vector<WeighedPoint> fewer = before;
  fewer.erase(fewer.begin() + 17);
  EXPECT_LE(moved(by_key(fewer, 4), were), 27);
}

TEST(Shard, AnEstimateThatChangesALittleMovesNothing) {
  std::vector<WeighedPoint> points = sweep_of(30);
  const std::map<std::string, int> were = by_key(points, 4);
  for (WeighedPoint& point : points) point.weight *= 1.01;
  EXPECT_LE(moved(were, by_key(points, 4)), 27);
}

TEST(Shard, MoreShardsThanPointsLeaveSomeEmpty) {
  const std::vector<WeighedPoint> points{{"a", 1}, {"b", 100}};
  const std::vector<int> shard_of = assign_shards(points, 50);
  EXPECT_NE(shard_of[0], shard_of[1]);
  EXPECT_TRUE(assign_shards(std::vector<WeighedPoint>{}, 3).empty());
}

}  // namespace
}  // namespace kv::experiments
