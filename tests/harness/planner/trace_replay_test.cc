// The replay under a watch: every request ends once with the tokens it asked for, and at each step the blocks in use are
// those that the sequences alive need.
#include "harness/planner/trace_replay.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <stdexcept>

#include "harness/planner/trace_facts.h"

namespace kv::planner {
namespace {

constexpr int kLayers = 3, kHeads = 2, kHeadDim = 32;
constexpr int64_t kMostTokens = 4096;

config::Geometry geometry() {
  config::Geometry g;
  g.name = "tiny";
  g.layers = g.model_layers = kLayers;
  g.q_heads = g.kv_heads = kHeads;
  g.head_dim = kHeadDim;
  g.parameters = 1000000;
  g.kinds.resize(kLayers);
  return g;
}

const Device kDevice{.read_gbps = 10.0, .flops = 1e12, .link_gbps = 1.0};

std::vector<io::Request> random_requests(uint32_t seed, int count) {
  std::mt19937 random(seed);
  std::vector<io::Request> all;
  double now = 0.0;
  for (int i = 0; i < count; ++i) {
    now += static_cast<double>(random() % 1000) * 1e-6;
    io::Request& request = all.emplace_back();
    request.arrival_s = now;
    request.prompt_tokens = static_cast<int64_t>(random() % 700);
    request.output_tokens = 1 + static_cast<int64_t>(random() % 120) - static_cast<int64_t>(i % 50 == 0);
  }
  // One asks for no answer.
  all.front().output_tokens = 0;
  all.front().prompt_tokens = 7;
  return all;
}

// f16 rows of K and V of all layers.
constexpr int64_t kTokenBytes = 2 * 2 * kLayers * kHeads * kHeadDim;

struct Watched {
  ReplayResult result;
  std::map<int64_t, Live> ended;
  int64_t refused = 0, steps = 0;
};

// No less than what is filled, and no more than all.
void expect_reserved(const RowAllocator& rows, const std::vector<Live>& running) {
  double stored = 0.0;
  for (const Live& live : running) stored += rows.stored_bytes(live.rows);
  EXPECT_LE(stored, static_cast<double>(rows.reserved_bytes()));
  EXPECT_LE(rows.reserved_bytes(), rows.held_bytes());
}

Watched watched(const std::vector<io::Request>& requests, const std::string& spec, int64_t bytes,
                const SchedulerSettings& scheduler) {
  const Room room{.bytes = bytes,
                  .max_tokens = kMostTokens,
                  .typical_tokens = 400,
                  .max_sequences = scheduler.max_running};
  const LayerSpecs specs = parse_layer_specs(spec);
  RowAllocator rows(geometry(), specs, room);
  const int64_t block = pool_settings(specs.fallback).value_or(PoolSettings{.block_rows = 0}).block_rows;
  Watched out;
  Watch watch;
  watch.step = [&](const std::vector<Live>& running, size_t waiting) {
    ++out.steps;
    int64_t blocks = 0, last = -1;
    for (const Live& live : running) {
      EXPECT_GT(live.request, last) << "in the order of arrival";
      last = live.request;
      if (block > 0) blocks += (live.rows + block - 1) / block * kLayers;
      EXPECT_LE(live.rows, live.prompt + live.generated);
    }
    EXPECT_EQ(rows.blocks_in_use(), blocks);
    EXPECT_LE(rows.blocks_in_use(), rows.pool_blocks());
    EXPECT_LE(rows.held_bytes(), bytes);
    EXPECT_TRUE(block == 0 || rows.reserved_bytes() == blocks * block * kTokenBytes / kLayers);
    expect_reserved(rows, running);
    EXPECT_LE(running.size(), static_cast<size_t>(scheduler.max_running));
    EXPECT_LE(running.size() + waiting + out.ended.size(), requests.size());
  };
  watch.end = [&](const Live& live, bool refused) {
    EXPECT_TRUE(out.ended.emplace(live.request, live).second) << "request " << live.request << " ended twice";
    out.refused += refused;
    if (!refused) {
      EXPECT_EQ(live.generated, live.output);
      // The last token's row is not computed; those of all before it are, though they were given up in between.
      EXPECT_EQ(live.rows, live.prompt + std::max<int64_t>(0, live.output - 1));
    }
  };
  out.result = replay(in_turn(requests), rows, StepTime(geometry(), 1000000, kDevice), scheduler, watch);
  EXPECT_EQ(out.ended.size(), requests.size());
  EXPECT_EQ(out.result.requests, static_cast<int64_t>(requests.size()));
  EXPECT_EQ(out.result.refused, out.refused);
  EXPECT_EQ(out.steps, out.result.steps);
  EXPECT_EQ(out.result.good.size(), requests.size());
  EXPECT_EQ(out.result.cluster.size(), out.result.ttft_s.size());
  EXPECT_EQ(out.result.tpot_cluster.size(), out.result.tpot_s.size());
  int64_t asked = 0;
  for (const auto& [request, live] : out.ended) asked += live.generated;
  EXPECT_EQ(out.result.generated_tokens, asked);
  EXPECT_EQ(rows.blocks_in_use(), 0);
  return out;
}

TEST(Replay, LosesNothingWhateverTheRoom) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    const auto requests = random_requests(seed, 200);
    for (const char* spec : {"paged/f16", "paged(block=1)/f16", "paged(block=64)/f16", "contiguous/f16",
                             "doubling/f16", "segmented/f16", "concat/f16"}) {
      const bool contiguous = spec[0] != 'p';
      for (const int64_t tokens : {1500, 4000, 20000}) {
        for (const bool swap : {false, true}) {
          if (contiguous && tokens < kMostTokens) continue;
          const SchedulerSettings scheduler{
              .step_tokens = 64 + 200 * (seed % 3), .max_running = 24, .swap = swap};
          const Watched w = watched(requests, spec, tokens * kTokenBytes + (1 << 18), scheduler);
          EXPECT_EQ(w.refused, 0) << spec << " " << tokens;
        }
      }
    }
  }
}

TEST(Replay, PreemptsWithHalfOfWhatIsNeededAndNeverWithAll) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    const auto requests = random_requests(seed, 300);
    for (const bool swap : {false, true}) {
      const SchedulerSettings scheduler{
          .step_tokens = 512, .max_running = 64, .swap = swap, .watermark = 0.0};
      const Watched ample = watched(requests, "paged/f16", int64_t{1} << 30, scheduler);
      EXPECT_EQ(ample.result.preemptions, 0);
      EXPECT_EQ(ample.result.recomputed_tokens, 0);
      const Watched tight = watched(requests, "paged/f16", ample.result.peak_held_bytes / 2, scheduler);
      EXPECT_GT(tight.result.preemptions, 0) << seed;
      EXPECT_GT(swap ? tight.result.swapped_tokens : tight.result.recomputed_tokens, 0);
      EXPECT_GE(tight.result.seconds, ample.result.seconds);
      EXPECT_EQ(tight.result.generated_tokens, ample.result.generated_tokens);
    }
  }
}

TEST(Replay, CountsAsGoodWhatIsWithinBothLimits) {
  const auto requests = random_requests(2, 200);
  SchedulerSettings scheduler{.step_tokens = 512, .max_running = 16};
  const ReplayResult all = watched(requests, "paged/f16", 1 << 22, scheduler).result;
  EXPECT_EQ(std::count(all.good.begin(), all.good.end(), 1.0), 200);
  std::vector<double> first = all.ttft_s;
  std::sort(first.begin(), first.end());
  scheduler.limit_ttft_s = first[99];
  const ReplayResult half = watched(requests, "paged/f16", 1 << 22, scheduler).result;
  EXPECT_EQ(std::count(half.good.begin(), half.good.end(), 1.0), 100);
  scheduler.limit_tpot_s = 1e-9;
  const ReplayResult none = watched(requests, "paged/f16", 1 << 22, scheduler).result;
  const auto short_answers = std::count_if(requests.begin(), requests.end(),
                                           [](const io::Request& r) { return r.output_tokens <= 1; });
  EXPECT_LE(std::count(none.good.begin(), none.good.end(), 1.0), short_answers);
}

TEST(Replay, HoldsApartWhatIsFilledAndWhatIsReserved) {
  const auto requests = random_requests(5, 200);
  const SchedulerSettings scheduler{.step_tokens = 512, .max_running = 16};
  double last = -1.0;
  for (const char* spec : {"paged(block=1)/f16", "paged/f16", "paged(block=64)/f16", "contiguous/f16"}) {
    const ReplayResult r = watched(requests, spec, int64_t{1} << 28, scheduler).result;
    const double share = r.mean.slack_bytes / (r.mean.slack_bytes + r.mean.payload_bytes);
    EXPECT_GT(share, last) << spec;
    EXPECT_GT(r.mean.payload_bytes, 0.0);
    EXPECT_GE(r.peak_running(), r.running_percentile(99));
    EXPECT_GE(r.running_percentile(99), r.running_percentile(50));
    EXPECT_GE(r.peak_waiting(), r.waiting_percentile(99));
    last = share;
  }
  EXPECT_EQ(watched(requests, "paged(block=1)/f16", int64_t{1} << 28, scheduler).result.mean.slack_bytes,
            0.0);
}

TEST(Replay, RefusesWhatWouldNotFitAlone) {
  std::vector<io::Request> requests = random_requests(1, 20);
  requests[5].prompt_tokens = kMostTokens + 1;  // longer than the context
  requests[6].prompt_tokens = 3000;             // longer than the pool
  const Watched w =
      watched(requests, "paged/f16", 2000 * kTokenBytes, {.step_tokens = 512, .max_running = 8});
  EXPECT_EQ(w.refused, 2);
}

TEST(Replay, TakesTheTimeOfItsSteps) {
  // One request alone: a step for its prompt, then one for each further token. Weights are 1 MB at 10 GB/s: 100 us.
  std::vector<io::Request> one(1);
  one.front().prompt_tokens = 10;
  one.front().output_tokens = 4;
  const Watched w = watched(one, "paged/f16", 1 << 24, {.step_tokens = 64, .max_running = 2});
  EXPECT_EQ(w.result.steps, 4);
  double seconds = 0.0;
  for (const int64_t rows : {10, 11, 12, 13})
    seconds += 1e-4 + static_cast<double>(rows * kTokenBytes) / 10e9;
  EXPECT_NEAR(w.result.seconds, seconds, 1e-12);
  EXPECT_NEAR(w.result.ttft_s.at(0), 1e-4 + 10.0 * kTokenBytes / 10e9, 1e-12);
  EXPECT_NEAR(w.result.tpot_s.at(0), (seconds - w.result.ttft_s.at(0)) / 3, 1e-12);
  EXPECT_EQ(w.result.wait_s.at(0), 0.0);
  EXPECT_EQ(w.result.peak_running(), 1);
}

TEST(RowAllocator, CountsWhatCachesHold) {
  // The closed form of real caches of these lengths.
  const std::vector<int64_t> lengths{1, 15, 16, 17, 500, 1000};
  const CacheShape shape{.layers = kLayers,
                         .q_heads = kHeads,
                         .kv_heads = kHeads,
                         .head_dim = kHeadDim,
                         .max_tokens = kMostTokens,
                         .max_sequences = 6};
  for (const char* text : {"contiguous/f16", "doubling/q8_0", "segmented/f16", "concat/kivi(bits=2)",
                           "contiguous/f16/ring(window=64)", "contiguous/q4_0/h2o(heavy=32,recent=32)"}) {
    const Spec spec = parse_spec(text);
    RowAllocator rows(
        geometry(), spec,
        {.bytes = 1 << 30, .max_tokens = kMostTokens, .typical_tokens = 300, .max_sequences = 6});
    for (int i = 0; i < 6; ++i) {
      ASSERT_TRUE(rows.open(i));
      ASSERT_TRUE(rows.grow(i, lengths[static_cast<size_t>(i)]));
    }
    EXPECT_EQ(rows.held_bytes(), predicted_bytes(spec, shape, lengths)) << text;
    for (int i = 0; i < 6; ++i) rows.close(i);
    EXPECT_EQ(rows.held_bytes(), 0) << text;
  }
}

TEST(RequestSource, GivesDrawnLengthsAgainAndAgain) {
  const auto lengths =
      std::make_shared<const DrawnLengths>(DrawnLengths{.prompt = {3, 4, 5}, .output = {1, 2}});
  RequestSource source(lengths, parse_arrivals("poisson(10)"), 7, 1);
  io::Request request;
  for (int i = 0; i < 7; ++i) {
    ASSERT_TRUE(source.next(request));
    EXPECT_EQ(request.prompt_tokens, 3 + i % 3);
    EXPECT_EQ(request.output_tokens, 1 + i % 2);
  }
  EXPECT_FALSE(source.next(request));
  EXPECT_THROW(RequestSource(lengths, {}, 7, 1), std::invalid_argument);
}

TEST(RequestSource, GivesWhatAllBeginWithTheSameIds) {
  const auto lengths = std::make_shared<const DrawnLengths>(
      DrawnLengths{.prompt = {3, 40}, .output = {1}, .prefix = 40, .id_tokens = 16});
  RequestSource source(lengths, parse_arrivals("poisson(10)"), 4, 1);
  io::Request request;
  for (int64_t i = 1; i <= 4; ++i) {
    ASSERT_TRUE(source.next(request));
    EXPECT_EQ(request.prompt_tokens, i % 2 == 1 ? 43 : 80);
    EXPECT_EQ(request.id_tokens, 16);
    EXPECT_EQ(request.prefix_ids,
              i % 2 == 1 ? (std::vector<int64_t>{0, 0, i}) : (std::vector<int64_t>{0, 0, i, i, i}));
  }
}

TEST(RequestSource, DrawsArrivalsOfTheRateAndSpreadThatAreAsked) {
  EXPECT_EQ(parse_arrivals("").per_second, 0.0);
  EXPECT_EQ(parse_arrivals("poisson(2.5)").per_second, 2.5);
  EXPECT_EQ(parse_arrivals("gamma(4,0.5)").cv, 0.5);
  for (const char* text : {"poisson", "poisson()", "poisson(0)", "poisson(-1)", "poisson(1,2)", "gamma(1)",
                           "gamma(1,)", "gamma(nan,1)", "gamma(1,2,3)", "uniform(1)"})
    EXPECT_THROW(parse_arrivals(text), std::invalid_argument) << text;
  const auto path =
      std::filesystem::temp_directory_path() / ("kvlab_arrivals_" + std::to_string(::getpid()) + ".csv");
  std::ofstream(path) << "TIMESTAMP,ContextTokens,GeneratedTokens\n0,3,4\n9,5,6\n";
  for (const char* text : {"poisson(2)", "gamma(2,0.5)", "gamma(2,2)"}) {
    const Arrivals arrivals = parse_arrivals(text);
    RequestSource source(path.string(), arrivals, 20001, 1);
    double last = 0.0, sum = 0.0, squares = 0.0;
    int64_t given = 0;
    for (io::Request request; source.next(request); ++given) {
      EXPECT_EQ(request.prompt_tokens, given % 2 == 0 ? 3 : 5);
      const double gap = request.arrival_s - last;
      last = request.arrival_s;
      sum += gap;
      squares += gap * gap;
    }
    EXPECT_EQ(given, 20001);
    // With 20,000 gaps, standard errors are 1.4 % of the mean at cv 2, and about as much of cv.
    EXPECT_NEAR(sum / 20000, 0.5, 0.025) << text;
    EXPECT_NEAR(std::sqrt(squares / 20000 - 0.25) / 0.5, arrivals.cv, 0.08 * arrivals.cv) << text;
  }
  RequestSource own(path.string(), {}, 0, 1);
  io::Request request;
  ASSERT_TRUE(own.next(request) && own.next(request));
  EXPECT_EQ(request.arrival_s, 9.0);
  EXPECT_FALSE(own.next(request));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace kv::planner
