#include "harness/experiments/shard.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <stdexcept>
#include <tuple>

#include "harness/experiments/experiment.h"
#include "harness/experiments/plan.h"
#include "harness/io/hash.h"
#include "harness/math/random.h"

namespace kv::experiments {
namespace {

// Two estimates within a factor of two rank alike, so that a small change moves no point.
int size_class(double weight) { return weight > 0 ? std::ilogb(weight) : -1; }

// A shard's capacity for points of `total` time: an eighth to a third above an equal part, in steps, so that a new
// point seldom changes it and moves the points at its edge.
double room_of_a_shard(double total, size_t shards) {
  constexpr double kSteps = 4.0;  // steps a factor of two
  return std::exp2(std::ceil(std::log2(1.125 * total / static_cast<double>(shards)) * kSteps) / kSteps);
}

// The shard, from 0, that the point's hash ranks first among those with room, or among the emptiest if none has.
size_t choose(uint64_t hash, double weight, double room, const std::vector<double>& taken) {
  room = std::max(room, *std::min_element(taken.begin(), taken.end()) + weight);
  size_t chosen = 0;
  uint64_t highest = 0;
  for (size_t shard = 0; shard < taken.size(); ++shard) {
    const uint64_t rank = math::random::key({hash, shard});
    if (taken[shard] + weight > room || rank < highest) continue;
    chosen = shard;
    highest = rank;
  }
  return chosen;
}

// Parses the whole text as a number; 0 if it is none.
int number_in(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

}  // namespace

Shard parse_shard(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash != std::string::npos) {
    const Shard shard{number_in(std::string_view(text).substr(0, slash)),
                      number_in(std::string_view(text).substr(slash + 1))};
    if (shard.index >= 1 && shard.index <= shard.of && shard.of <= kMostShards) return shard;
  }
  throw std::invalid_argument("--shard " + text + ": expected i/n with i from 1 to n, as 2/4, and n up to " +
                              std::to_string(kMostShards));
}

std::string point_key(const measure::SweepPoint& point) {
  std::string key = point.key_of("");
  for (const config::AnyAxis* axis : experiment_of(point).info.axes)
    key += " " + std::string(axis->column.name) + " " + point.axes.text(axis->column);
  return key;
}

std::vector<int> assign_shards(std::span<const WeighedPoint> points, int shards) {
  std::vector<uint64_t> hashes;
  std::map<int, double> total_of;  // by size class
  for (const WeighedPoint& point : points) {
    hashes.push_back(io::hash(point.key));
    total_of[size_class(point.weight)] += point.weight;
  }
  std::vector<size_t> order(points.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto place = [&](size_t i) { return std::tuple(-size_class(points[i].weight), hashes[i]); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place(a) < place(b); });
  std::vector<double> taken(static_cast<size_t>(shards), 0.0);
  std::vector<int> shard_of(points.size());
  double total = 0.0, room = 0.0;
  int last_class = std::numeric_limits<int>::max();
  for (const size_t i : order) {
    // Long points are spread before short ones fill the gaps.
    if (const int now = size_class(points[i].weight); now != last_class) {
      total += total_of[now];
      room = room_of_a_shard(total, taken.size());
      last_class = now;
    }
    const size_t chosen = choose(hashes[i], points[i].weight, room, taken);
    taken[chosen] += points[i].weight;
    shard_of[i] = static_cast<int>(chosen) + 1;
  }
  return shard_of;
}

std::vector<int> assign_shards(std::span<const measure::SweepPoint> points, int shards) {
  std::vector<WeighedPoint> weighed;
  for (const measure::SweepPoint& point : points) weighed.push_back({point_key(point), weight(point)});
  return assign_shards(weighed, shards);
}

void keep_shard(const Shard& shard, std::vector<measure::SweepPoint>& points) {
  const std::vector<int> shard_of = assign_shards(points, shard.of);
  std::vector<measure::SweepPoint> kept;
  for (size_t i = 0; i < points.size(); ++i) {
    if (shard_of[i] == shard.index) kept.push_back(std::move(points[i]));
  }
  points = std::move(kept);
}

}  // namespace kv::experiments
