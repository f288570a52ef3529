// Requests served over real caches: whatever runs beside a request, comes before it or takes its room, its answer is the one
// that it gets alone, and the cache holds at every step what the allocator says.
#include "harness/experiments/serve/serving.h"

#include <gtest/gtest.h>

#include "harness/experiments/serve/check.h"
#include "harness/math/random.h"
#include "tests/harness/model/tiny_hugging_face.h"

namespace kv::experiments {
namespace {

constexpr int64_t kContext = 160;

const model::Model& tiny_server() {
  static const test::TinyModel file({.dim = 128, .hidden = 64, .vocab = 96, .seq_len = kContext});
  static const model::Model model(file.path());
  return model;
}

// 24 requests in a hurry, of which every second begins with the same 64 tokens.
std::vector<ServedRequest> requests() {
  std::vector<ServedRequest> all;
  for (uint64_t i = 0; i < 24; ++i) {
    const auto draw = [&](uint64_t what, uint64_t most) {
      return static_cast<int>(math::random::below(math::random::key({7, what}), i, most));
    };
    ServedRequest& one = all.emplace_back();
    for (int t = 0; i % 2 == 1 && t < 64; ++t) one.prompt.push_back((t * t + 5 * t) % 96);
    const int own = i == 9 || i == 13 ? 0 : draw(1, 50) + 1;  // two have no more than the common blocks
    for (int t = own - 1; t >= 0; --t) one.prompt.push_back(draw(100 + static_cast<uint64_t>(t), 96));
    one.request.arrival_s = 0.002 * static_cast<double>(i);
    one.request.prompt_tokens = std::ssize(one.prompt);
    one.request.output_tokens = i == 3 ? 0 : 1 + draw(2, 40);
  }
  return all;
}

ServingSetup setup_of(const std::string& spec, int64_t tokens, const planner::SchedulerSettings& scheduler) {
  // f32 rows of K and V, and the tables and buffers of all sequences.
  constexpr int64_t kTokenBytes = 2 * 2 * 2 * 32 * 4, kBeside = 1 << 20;
  return {.model = &tiny_server(),
          .spec = parse_layer_specs(spec),
          .room = {.bytes = tokens * kTokenBytes + kBeside,
                   .max_tokens = kContext,
                   .typical_tokens = 80,
                   .max_sequences = scheduler.max_running},
          .scheduler = scheduler};
}

bool never() { return false; }

// Steps of a millisecond, or where `step_s` is 0 as long as they take.
ServedRun served(const ServingSetup& setup, const std::vector<ServedRequest>& all, double step_s = 1e-3) {
  const ServedRun run = serve(setup, all, never, step_s);
  EXPECT_EQ(run.failure, "");
  const AnswerCheck check = check_answers(setup, all, answers_alone(setup, all, never), run.answers);
  EXPECT_EQ(check.failure, "");
  EXPECT_LE(check.rounded, 2);
  EXPECT_EQ(run.result.requests, std::ssize(all));
  // The recorded times give the same schedule without a model.
  size_t step = 0;
  const planner::ReplayResult again =
      replay_served(setup, all, [&](const planner::StepPlan&, const planner::StepWork& work) {
        EXPECT_EQ(work, run.steps.at(step).work);
        return planner::StepSeconds{.measured = run.steps.at(step++).seconds};
      });
  EXPECT_EQ(step, run.steps.size());
  EXPECT_EQ(again.preemptions, run.result.preemptions);
  EXPECT_EQ(again.found_tokens, run.result.found_tokens);
  EXPECT_EQ(again.wait_s, run.result.wait_s);
  EXPECT_EQ(again.ttft_s, run.result.ttft_s);
  EXPECT_EQ(again.tpot_s, run.result.tpot_s);
  return run;
}

TEST(Serving, AnswersAsAlone) {
  const auto all = requests();
  for (const char* spec : {"contiguous/f32", "paged(block=16)/f16", "paged(block=32)/kivi(bits=2)",
                           "paged/q4_0", "segmented/q8_0", "paged/f16/ring(window=60,sinks=4)"}) {
    for (const int64_t tokens : {int64_t{16}, int64_t{48}, kContext * 100}) {
      const ServedRun run =
          served(setup_of(spec, 16 * kContext, {.step_tokens = tokens, .max_running = 8}), all);
      EXPECT_EQ(run.result.preemptions, 0) << spec;
      EXPECT_EQ(run.result.refused, 0) << spec;
      EXPECT_GE(run.result.peak_running(), 7) << spec;
      EXPECT_EQ(run.padding_tokens, 0);
    }
  }
}

TEST(Serving, AnswersAsAloneInStaticBatches) {
  const auto all = requests();
  for (const char* spec : {"contiguous/f16", "paged/q8_0"}) {
    const ServedRun run = served(
        setup_of(spec, 16 * kContext, {.step_tokens = 1 << 20, .max_running = 8, .lockstep = true}), all);
    EXPECT_EQ(run.result.refused, 0);
    EXPECT_GT(run.padding_tokens, 0);
    // Batches of eight at most: a request that comes late waits for all of them.
    EXPECT_GE(run.result.steps, 3 * 2);
    for (const planner::ServedClock::Step& step : run.steps) EXPECT_LE(step.work.decoding, 8);
  }
}

// Batches of eight that come at once: prompts as long as the longest, and a token for each that has ended.
TEST(Serving, PadsStaticBatches) {
  auto all = requests();
  int64_t padding = 0;
  for (size_t first = 0; first < all.size(); first += 8) {
    int64_t prompt = 0, output = 0;
    for (size_t i = first; i < first + 8; ++i) {
      all[i].request.arrival_s = 0.0;
      prompt = std::max(prompt, all[i].request.prompt_tokens);
      output = std::max(output, all[i].request.output_tokens);
    }
    for (size_t i = first; i < first + 8; ++i) {
      const io::Request& one = all[i].request;
      padding += prompt - one.prompt_tokens + output - std::max<int64_t>(1, one.output_tokens);
    }
  }
  const ServedRun run = served(
      setup_of("contiguous/f32", 16 * kContext, {.step_tokens = 1 << 20, .max_running = 8, .lockstep = true}),
      all);
  EXPECT_EQ(run.padding_tokens, padding);
}

TEST(Serving, RecomputesWhatItPreempts) {
  const auto all = requests();
  // Rows of about two requests, tables and buffers of all.
  for (const auto& [spec, bytes] : {std::pair{"paged(block=16)/f16", 150000}, {"paged/q4_0", 64000}}) {
    ServingSetup setup = setup_of(spec, 0, {.step_tokens = 64, .max_running = 8, .watermark = 0.0});
    setup.room.bytes = bytes;
    const ServedRun run = served(setup, all);
    EXPECT_GT(run.result.preemptions, 0) << spec;
    EXPECT_GT(run.result.recomputed_tokens, 0) << spec;
    EXPECT_EQ(run.result.refused, 0) << spec;
  }
}

// The requests come while steps run, whose times nobody knows before.
TEST(Serving, HasTheScheduleOfAReplayOnTheWallsClock) {
  auto all = requests();
  for (ServedRequest& one : all) one.request.arrival_s /= 4;
  for (const bool lockstep : {false, true}) {
    ServingSetup setup =
        setup_of("paged(block=16)/f16", 0,
                 {.step_tokens = 64, .max_running = 8, .watermark = 0.0, .lockstep = lockstep});
    setup.room.bytes = 150000;
    EXPECT_GT(served(setup, all, 0.0).steps.size(), 40U);
  }
}

TEST(Serving, SharesPrefixesByContent) {
  const auto all = requests();
  for (const char* spec : {"paged(block=16)/f16", "paged(block=32)/q8_0"}) {
    for (const int64_t bytes : {int64_t{1} << 22, int64_t{150000}}) {
      ServingSetup setup = setup_of(spec, 0, {.step_tokens = 64, .max_running = 8, .watermark = 0.0});
      setup.room.bytes = bytes;
      setup.scheduler.share_tokens =
          shared_tokens(setup.spec, {geometry_of(tiny_server().config()), setup.spec, setup.room});
      ASSERT_GT(setup.scheduler.share_tokens, 0);
      const ServedRun run = served(setup, all);
      EXPECT_GE(run.result.found_tokens, 6 * 32) << spec;
      EXPECT_EQ(run.result.preemptions > 0, bytes == 150000) << spec;
    }
  }
}

TEST(Serving, RefusesWhatDoesNotFitAlone) {
  auto all = requests();
  all[5].prompt.resize(kContext, 1);
  all[5].request.prompt_tokens = kContext;
  all[5].request.output_tokens = 2;
  const ServedRun run =
      served(setup_of("paged/f16", 16 * kContext, {.step_tokens = 64, .max_running = 8}), all);
  EXPECT_EQ(run.result.refused, 1);
  EXPECT_TRUE(run.answers[5].empty());
}

TEST(Serving, NoticesAWrongToken) {
  const auto all = requests();
  const ServingSetup setup = setup_of("contiguous/f32", 16 * kContext, {.step_tokens = 64, .max_running = 8});
  const auto alone = answers_alone(setup, all, never);
  auto other = alone;
  EXPECT_EQ(check_answers(setup, all, alone, other).failure, "");
  other[7][2] = (other[7][2] + 1) % 96;
  const std::string failure = check_answers(setup, all, alone, other).failure;
  EXPECT_NE(failure.find("request 7 leaves its answer alone at token 2"), std::string::npos) << failure;
  other[4].pop_back();
  EXPECT_NE(check_answers(setup, all, alone, other).failure.find("request 4"), std::string::npos);
}

}  // namespace
}  // namespace kv::experiments
