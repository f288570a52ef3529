// Hit rates of prefix caches: the one pass against a cache that is simulated block by block, Belady's bound against all
// that a cache could do, and the traces' own facts counted by hand.
#include "harness/planner/hit_rate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>

namespace kv::planner {
namespace {

// Least recently used, one list, and a hit only where all blocks before are there too.
class SlowCache {
 public:
  explicit SlowCache(size_t capacity) : capacity_(capacity) {}
  int64_t request(const std::vector<int32_t>& blocks) {
    int64_t hits = 0;
    while (hits < std::ssize(blocks) &&
           std::find(used_.begin(), used_.end(), blocks[static_cast<size_t>(hits)]) != used_.end())
      ++hits;
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
      std::erase(used_, *block);
      used_.insert(used_.begin(), *block);
    }
    if (used_.size() > capacity_) used_.resize(capacity_);
    return hits;
  }

 private:
  size_t capacity_;
  std::vector<int32_t> used_;  // the latest first
};

std::vector<io::Request> random_tries(uint32_t seed, int64_t id_tokens) {
  std::mt19937 random(seed);
  std::vector<std::vector<int64_t>> paths{{}};
  std::vector<io::Request> requests;
  for (int i = 0; i < 300; ++i) {
    std::vector<int64_t> path = paths[random() % paths.size()];
    path.resize(path.empty() ? 0 : random() % (path.size() + 1));
    for (uint32_t more = random() % 6; more > 0; --more) path.push_back(random() % 8);
    if (path.empty()) path.push_back(0);
    paths.push_back(path);
    io::Request& request = requests.emplace_back();
    request.prefix_ids = path;
    request.id_tokens = id_tokens;
    request.prompt_tokens = std::ssize(path) * id_tokens - static_cast<int64_t>(random()) % id_tokens;
  }
  return requests;
}

std::vector<std::vector<int32_t>> nodes_of(const std::vector<io::Request>& requests, int64_t block_tokens) {
  BlockTree tree(block_tokens);
  std::vector<std::vector<int32_t>> all;
  for (const io::Request& request : requests) all.push_back(tree.nodes(request));
  return all;
}

TEST(HitRates, OfOnePassAreThoseOfEveryCacheSimulated) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const auto requests = nodes_of(random_tries(seed, 16), 16);
    HitRates rates;
    for (const auto& request : requests) rates.add(request);
    for (const size_t capacity : {1u, 2u, 3u, 5u, 8u, 13u, 21u, 40u, 80u, 160u, 320u, 10000u}) {
      SlowCache cache(capacity);
      int64_t hits = 0;
      for (const auto& request : requests) hits += cache.request(request);
      EXPECT_EQ(rates.hits(static_cast<int64_t>(capacity)), hits) << seed << ", " << capacity;
    }
    EXPECT_EQ(rates.hits(rates.steps().back()), rates.hits_at_any());
    EXPECT_LT(rates.hits(rates.steps().back() - 1), rates.hits_at_any());
  }
}

// Tries every content of the cache after each use: every subset of at most `capacity` blocks.
int64_t best_of_all(const std::vector<int32_t>& uses, size_t capacity) {
  std::map<std::set<int32_t>, int64_t> states{{{}, 0}};
  for (const int32_t use : uses) {
    std::map<std::set<int32_t>, int64_t> next;
    for (const auto& [held, before] : states) {
      const int64_t hits = before + static_cast<int64_t>(held.contains(use));
      const auto reach = [&](const std::set<int32_t>& to) {
        next[to] = std::max(next.try_emplace(to, 0).first->second, hits);
      };
      reach(held);
      std::set<int32_t> with = held;
      with.insert(use);
      if (with.size() <= capacity) reach(with);
      for (const int32_t out : held) {
        std::set<int32_t> swapped = with;
        swapped.erase(out);
        reach(swapped);
      }
    }
    states = std::move(next);
  }
  int64_t best = 0;
  for (const auto& [held, hits] : states) best = std::max(best, hits);
  return best;
}

TEST(HitRates, OfBeladyAreTheMostThereCanBe) {
  std::mt19937 random(7);
  for (int run = 0; run < 20; ++run) {
    std::vector<std::vector<int32_t>> requests;
    std::vector<int32_t> uses;
    for (int i = 0; i < 16; ++i) {
      requests.push_back({static_cast<int32_t>(random() % 6)});
      uses.push_back(requests.back().front());
    }
    for (const int64_t capacity : {1, 2, 3})
      EXPECT_EQ(belady_hits(requests, capacity), best_of_all(uses, static_cast<size_t>(capacity)));
  }
  const auto tries = nodes_of(random_tries(1, 16), 16);
  HitRates rates;
  for (const auto& request : tries) rates.add(request);
  for (const int64_t capacity : {5, 20, 80}) EXPECT_GE(belady_hits(tries, capacity), rates.hits(capacity));
  EXPECT_EQ(belady_hits(tries, rates.distinct()), rates.hits_at_any());
}

// By the tokens that each block would have: those of an id are its own and their place in it.
TEST(BlockTree, FindsBlocksOfAnySizeByAllTokensBeforeThem) {
  for (const int64_t block : {1, 4, 16, 32, 64}) {
    const auto requests = random_tries(3, 16);
    const auto nodes = nodes_of(requests, block);
    std::map<std::vector<int64_t>, int32_t> seen;
    for (size_t i = 0; i < requests.size(); ++i) {
      std::vector<int64_t> tokens;
      size_t at = 0;
      for (int64_t t = 0; t < requests[i].prompt_tokens; ++t) {
        tokens.push_back(requests[i].prefix_ids[static_cast<size_t>(t / 16)] * 16 + t % 16);
        if ((t + 1) % block != 0 && t + 1 < requests[i].prompt_tokens) continue;
        // An id stands for its tokens, wherever the prompt ends: a block that is begun is known by them all.
        std::vector<int64_t> whole = tokens;
        const int64_t step = std::min<int64_t>(block, 16);
        while (std::ssize(whole) % step != 0) whole.push_back(whole.back() + 1);
        ASSERT_LT(at, nodes[i].size());
        const auto [found, is_new] = seen.try_emplace(whole, nodes[i][at]);
        EXPECT_EQ(found->second, nodes[i][at]) << block;
        if (is_new) {
          EXPECT_EQ(nodes[i][at], static_cast<int32_t>(seen.size()) - 1);
        }
        ++at;
      }
      EXPECT_EQ(at, nodes[i].size());
    }
  }
  EXPECT_THROW(nodes_of(random_tries(3, 16), 24), std::invalid_argument);
  EXPECT_THROW(nodes_of(random_tries(3, 16), 0), std::invalid_argument);
}

// (blocks - distinct ids) / blocks: with a file reader and a set alone.
TEST(HitRates, WithoutLimitAreTheDistinctIdsOfTheTraces) {
  const char* set = std::getenv("KVLAB_DATA");
  const std::filesystem::path folder =
      std::filesystem::path(set ? set : KVLAB_SOURCE_DIR "/../shared/data") / "traces";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no traces in " << folder << " (set KVLAB_DATA)";
  for (const char* name : {"mooncake_conversation.jsonl", "mooncake_synthetic.jsonl"}) {
    std::set<int64_t> distinct;
    int64_t blocks = 0;
    std::ifstream lines(folder / name);
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json request = nlohmann::json::parse(line);
      for (const auto& id : request.at("hash_ids")) {
        distinct.insert(id.get<int64_t>());
        ++blocks;
      }
    }
    BlockTree tree(512);
    HitRates rates;
    io::RequestTrace trace((folder / name).string());
    for (io::Request request; trace.next(request);) rates.add(tree.nodes(request));
    ASSERT_GT(blocks, 100000) << name;
    EXPECT_EQ(rates.blocks(), blocks) << name;
    EXPECT_EQ(rates.hits_at_any(), blocks - static_cast<int64_t>(distinct.size())) << name;
  }
}

}  // namespace
}  // namespace kv::planner
