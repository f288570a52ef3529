// Replays whose requests begin alike: nothing is lost or served twice, blocks in use are those that live sequences and the
// prefix cache have, and all of them come back.
#include "harness/planner/prefix_sharing.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <stdexcept>

#include "harness/planner/hit_rate.h"
#include "harness/planner/trace_replay.h"

namespace kv::planner {
namespace {

constexpr int kTwoLayers = 2;
constexpr int64_t kUnitTokens = 64, kBlockRows = 16;
constexpr int64_t kBytesOfToken = 2 * 2 * kTwoLayers * 2 * 32;  // f16, K and V of 2 heads of 32

config::Geometry two_layers() {
  config::Geometry g;
  g.layers = g.model_layers = kTwoLayers;
  g.q_heads = g.kv_heads = 2;
  g.head_dim = 32;
  g.parameters = 1000000;
  g.kinds.resize(kTwoLayers);
  return g;
}

// Prompts are walks from the root of a random tree.
std::vector<io::Request> walks(uint32_t seed, int count) {
  std::mt19937 random(seed);
  std::vector<io::Request> all;
  double now = 0.0;
  for (int i = 0; i < count; ++i) {
    now += static_cast<double>(random() % 1000) * 1e-6;
    io::Request& request = all.emplace_back();
    request.arrival_s = now;
    request.prompt_tokens = 1 + static_cast<int64_t>(random() % 800);
    request.output_tokens = static_cast<int64_t>(random() % 80);
    request.id_tokens = kUnitTokens;
    for (int64_t at = 0; at < request.prompt_tokens; at += kUnitTokens)
      request.prefix_ids.push_back(static_cast<int64_t>(random() % 3));
  }
  return all;
}

struct SharedOutcome {
  ReplayResult result;
  std::set<int64_t> served;
  double peak_running = 0.0;
};

SharedOutcome shared_replay(const std::vector<io::Request>& requests, int64_t bytes,
                            const SchedulerSettings& scheduler) {
  RowAllocator rows(
      two_layers(), parse_layer_specs("paged/f16"),
      {.bytes = bytes, .max_tokens = 2048, .typical_tokens = 400, .max_sequences = scheduler.max_running});
  SharedOutcome out;
  Watch watch;
  watch.step = [&](const std::vector<Live>& running, size_t) {
    int64_t most = 0;
    std::set<int32_t> distinct;
    int64_t own = 0;
    for (const Live& live : running) {
      const int64_t blocks = (live.rows + kBlockRows - 1) / kBlockRows;
      const int64_t in_units = std::min(live.rows / kUnitTokens, static_cast<int64_t>(live.units.size())) *
                               (kUnitTokens / kBlockRows);
      most += blocks;
      own += blocks - in_units;
      for (int64_t i = 0; i < in_units / (kUnitTokens / kBlockRows); ++i)
        distinct.insert(live.units[static_cast<size_t>(i)]);
    }
    const auto unused = static_cast<int64_t>(rows.unused_bytes()) / (kBytesOfToken * kBlockRows);
    const int64_t used = rows.blocks_in_use() / kTwoLayers - unused;
    EXPECT_GE(used, own + std::ssize(distinct) * (kUnitTokens / kBlockRows))
        << "two share only what is alike";
    EXPECT_LE(used, most);
    EXPECT_LE(rows.blocks_in_use(), rows.pool_blocks());
    EXPECT_LE(rows.held_bytes(), bytes);
  };
  watch.end = [&](const Live& live, bool refused) {
    EXPECT_FALSE(refused);
    EXPECT_TRUE(out.served.insert(live.request).second) << "twice";
    EXPECT_EQ(live.generated, live.output);
  };
  out.result = replay(in_turn(requests), rows,
                      StepTime(two_layers(), 1000000, {.read_gbps = 10.0, .flops = 1e12, .link_gbps = 1.0}),
                      scheduler, watch);
  EXPECT_EQ(out.served.size(), requests.size());
  EXPECT_EQ(rows.blocks_in_use(), 0) << "the cache has given all of it back";
  EXPECT_EQ(rows.unused_bytes(), 0.0);
  EXPECT_EQ(rows.counted_again_bytes(), 0.0);
  return out;
}

TEST(PrefixSharing, LosesNothingWhateverTheRoom) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    const auto requests = walks(seed, 250);
    for (const int64_t tokens : {1000, 3000, 40000}) {
      for (const bool swap : {false, true}) {
        const SchedulerSettings scheduler{.step_tokens = 100 + 150 * (seed % 3),
                                          .max_running = 16,
                                          .swap = swap,
                                          .share_tokens = kUnitTokens};
        const SharedOutcome out = shared_replay(requests, tokens * kBytesOfToken + (1 << 17), scheduler);
        EXPECT_GT(out.result.found_tokens, 0);
        EXPECT_GE(out.result.recomputed_tokens, 0);
      }
    }
  }
}

// With room for all, each distinct unit is computed once at least; one request after another, exactly once.
TEST(PrefixSharing, FindsAllThatIsThereWhereRequestsComeOneByOne) {
  std::vector<io::Request> requests = walks(7, 200);
  BlockTree tree(kUnitTokens);
  std::set<int32_t> seen;
  int64_t found = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    io::Request& request = requests[i];
    request.arrival_s = static_cast<double>(i) * 100.0;
    const std::vector<int32_t> units = tree.nodes(request);
    bool hit = true;
    for (int64_t unit = 0; unit < request.prompt_tokens / kUnitTokens; ++unit) {
      // One token is left to compute.
      const bool may = (unit + 1) * kUnitTokens <= request.prompt_tokens - 1;
      hit = !seen.insert(units[static_cast<size_t>(unit)]).second && hit;
      if (hit && may) found += kUnitTokens;
    }
  }
  const SchedulerSettings scheduler{.step_tokens = 512, .max_running = 4, .share_tokens = kUnitTokens};
  const SharedOutcome out = shared_replay(requests, int64_t{1} << 28, scheduler);
  EXPECT_EQ(out.result.found_tokens, found);
  EXPECT_EQ(out.result.preemptions, 0);
}

TEST(PrefixSharing, ServesSoonerThanWithout) {
  const auto requests = walks(3, 300);
  SchedulerSettings scheduler{.step_tokens = 256, .max_running = 16, .watermark = 0.0};
  const int64_t bytes = 4000 * kBytesOfToken;
  const double without = shared_replay(requests, bytes, scheduler).result.seconds;
  scheduler.share_tokens = kUnitTokens;
  EXPECT_LT(shared_replay(requests, bytes, scheduler).result.seconds, without);
}

TEST(PrefixSharing, IsRefusedWhereBlocksAreASequencesOwn) {
  const Room room{.bytes = 1 << 26, .max_tokens = 2048, .typical_tokens = 400, .max_sequences = 4};
  for (const char* spec : {"contiguous/f16", "paged/f16/ring(window=64)", "paged(block=32)/kivi(bits=2)",
                           "paged(block=128)/f16"}) {
    RowAllocator rows(two_layers(), parse_layer_specs(spec), room);
    EXPECT_NE(rows.refuses_sharing(kUnitTokens), "") << spec;
    EXPECT_THROW(PrefixSharing(rows, kUnitTokens), std::invalid_argument) << spec;
  }
}

}  // namespace
}  // namespace kv::planner
