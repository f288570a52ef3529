// Steps that verify drafts: what stays of them, what is left in the cache, and who cannot go back.
#include "harness/measure/drafts.h"

#include <gtest/gtest.h>

namespace kv::measure {
namespace {

const workload::WorkloadShape kShape{.layers = 2, .q_heads = 4, .kv_heads = 2, .head_dim = 32};

TEST(DraftSteps, KeepWhatIsAccepted) {
  const auto rows = workload::make_synthetic("gaussian", kShape, 1);
  const auto steps = [&](double accept, uint64_t seed = 1) {
    return DraftSteps(*rows, 3, {.drafts = 4, .accept = accept, .seed = seed, .first = 100, .end = 2100});
  };
  const DraftSteps all = steps(1.0), none = steps(0.0), some = steps(0.7);
  EXPECT_EQ(all.mean_stays(), 5.0);
  EXPECT_EQ(all.count(), 400u);
  EXPECT_EQ(all.tokens_after(2), 2100);
  EXPECT_EQ(none.mean_stays(), 1.0);
  EXPECT_EQ(none.count(), 1996u) << "until no step of 5 has room";
  // (1 - a^5) / (1 - a), over some 2,000 draws.
  EXPECT_NEAR(some.mean_stays(), (1 - 0.16807) / 0.3, 0.15);
  EXPECT_NE(some.tokens_after(0), some.tokens_after(1)) << "sequences draw for themselves";
  EXPECT_EQ(steps(0.7).mean_stays(), some.mean_stays());
  EXPECT_NE(steps(0.7, 2).mean_stays(), some.mean_stays());
}

// A cell at 60 tokens, and a feed with the outputs of a plain step on the 81st.
struct Scene {
  explicit Scene(const char* spec) : rows(workload::make_synthetic("gaussian", kShape, 1)), feed(*rows, 2) {
    cell.spec = parse_layer_specs(spec);
    cell.workload = rows;
    cell.ledger = std::make_unique<memory::Ledger>();
    ModelShape shape(CacheShape{.layers = kShape.layers,
                                .q_heads = kShape.q_heads,
                                .kv_heads = kShape.kv_heads,
                                .head_dim = kShape.head_dim,
                                .max_tokens = 100,
                                .max_sequences = 4},
                     {});
    cell.cache = build_cache(cell.spec, shape, *cell.ledger);
    feed.load(60, 21);
    open(80);
    cell.step(feed, 80, cell.ids, true);
    for (const SequenceId id : cell.ids) cell.cache->release(id);
    open(60);
  }
  void open(int64_t tokens) {
    cell.ids.clear();
    for (int i = 0; i < 2; ++i) cell.ids.push_back(cell.cache->add_sequence());
    workload::prefill(*cell.cache, *rows, cell.ids, 0, tokens);
  }
  std::string check(double accept = 0.5) {
    DraftSteps steps(*rows, 2, {.drafts = 3, .accept = accept, .seed = 1, .first = 60, .end = 80});
    EXPECT_GT(steps.count(), 3u);
    return check_drafts(cell, feed, steps, 80);
  }
  std::shared_ptr<const workload::Workload> rows;
  workload::TokenFeed feed;
  Cell cell;
};

TEST(Drafts, LeaveWhatPlainStepsDo) {
  for (const char* spec :
       {"contiguous", "contiguous/f16", "concat/f16", "doubling/q8_0", "segmented(rows=16)/q4_0", "paged/f16",
        "paged(block=1)/f16", "contiguous/token(bits=4)", "contiguous/f16/ring(window=100)"}) {
    EXPECT_EQ(Scene(spec).check(), "") << spec;
    EXPECT_EQ(Scene(spec).check(0.0), "") << spec;
  }
}

TEST(Drafts, ThatLeaveSomethingElseAreNoticed) {
  Scene scene("contiguous/f16");
  for (const SequenceId id : scene.cell.ids) scene.cell.cache->release(id);
  scene.open(80);
  scene.cell.step(scene.feed, 79, scene.cell.ids, true);
  for (const SequenceId id : scene.cell.ids) scene.cell.cache->release(id);
  scene.open(60);
  EXPECT_THROW(scene.check(), std::logic_error) << "these are the outputs of another token";
}

TEST(Drafts, AreRefusedWhereRowsWereOverwritten) {
  EXPECT_NE(
      Scene("contiguous/f16/ring(window=24)").check().find("retention 'ring': a full cache overwrites rows"),
      std::string::npos);
}

}  // namespace
}  // namespace kv::measure
