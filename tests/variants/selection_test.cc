// The rows that a selection reads are the FP64 selection's, and no others, however the tokens come.
#include <algorithm>
#include <numeric>

#include "harness/verify/reference/selection.h"
#include "tests/variants/contract.h"
#include "variants/model_cache/layer_groups.h"

namespace kv {
namespace {

using namespace contract;

constexpr CacheShape kGrouped{
    .layers = 2, .q_heads = 6, .kv_heads = 2, .head_dim = 64, .max_tokens = 400, .max_sequences = 2};

std::string reason_of(const std::string& spec) { return unsupported_reason(parse_spec(spec)); }

// Keys as they are stored, not rotated back.
std::vector<float> stored_keys(Cache& cache, SequenceId id, int layer, int head) {
  std::vector<float> keys;
  const int d = cache.shape().head_dim;
  for (const Span& span : cache.spans(id, layer, head)) {
    std::vector<float> rows(static_cast<size_t>(span.rows * d));
    decode_rows(span.k, d, 0, span.rows, rows.data());
    keys.insert(keys.end(), rows.begin(), rows.end());
  }
  return keys;
}

// A cache after some tokens of one layer, and the FP64 candidates of its last query.
struct Scene {
  Scene(const std::string& text, int64_t length, uint64_t seed = 3)
      : spec(parse_spec(text)), all(make_tokens(kGrouped, length, seed)) {
    cache = build_cache(spec, kGrouped, ledger);
    id = cache->add_sequence();
    const std::vector<int64_t> chunks{length - 1, 1};
    out = drive(*cache, id, all, length == 1 ? std::span(chunks).last(1) : std::span(chunks));
  }
  reference::Candidates candidates(int head, const reference::Parameters& parameters, float sign = 1.0f) {
    const Tokens last = slice(kGrouped, all, all.n - 1, 1);
    const int d = kGrouped.head_dim, group = kGrouped.group();
    std::vector<float> q(last.q.begin() + head * group * d, last.q.begin() + (head + 1) * group * d);
    for (float& x : q) x *= sign;
    const Codec codec = codec_of(spec).make(spec.codec);
    if (codec.k_rotation == Rotation::kRandom) reference::flip_signs(q, d);
    if (codec.k_rotation != Rotation::kNone) reference::hadamard(q, d);
    const std::vector<float> keys = stored_keys(*cache, id, 0, head);
    return *reference::candidates_of(
        spec.selection.name, parameters,
        {.q = q,
         .k = keys,
         .head_dim = d,
         .rows = std::ssize(keys) / d,
         .terms = std::vector<reference::SoftmaxTerms>(static_cast<size_t>(group))});
  }
  std::vector<int64_t> read(int head) const { return cache->read_slots(id, 0, head); }

  Spec spec;
  Tokens all;
  memory::Ledger ledger;
  std::unique_ptr<Cache> cache;
  SequenceId id;
  std::vector<float> out;
};

TEST(Selection, ReadsWhatTheFp64SelectionReads) {
  int64_t choices = 0, disputed = 0;
  for (const char* codec :
       {"f32", "f16", "q8_0", "q4_0", "token(bits=4,rotate=hadamard)", "turbo", "fp8", "nvfp4"}) {
    for (const int64_t length : {1, 15, 16, 17, 160, 161, 175, 333}) {
      const std::string before = "paged/" + std::string(codec);
      Scene quest(before + "/quest(top=0.25)", length), fine(before + "/quest(page=5,top=0.07)", length),
          topk(before + "/topk(rows=24)", length);
      const bool codes = kernel_error_bound(quest.spec) > 1e-5;
      for (int head = 0; head < kGrouped.kv_heads; ++head) {
        for (auto& [scene, parameters] :
             {std::pair<Scene&, reference::Parameters>{quest, {{"page", 16}, {"top", 25}, {"least", 1}}},
              {fine, {{"page", 5}, {"top", 7}, {"least", 1}}},
              {topk, {{"rows", 24}}}}) {
          const auto miss = reference::miss_of(scene.candidates(head, parameters), scene.read(head), length);
          ASSERT_LE(miss.worst, codes ? 2e-4 : 2e-5) << scene.spec.print() << " at " << length;
          choices += miss.choices;
          disputed += miss.disputed;
        }
      }
    }
  }
  EXPECT_GT(choices, 1000);
  EXPECT_LE(disputed, choices / 100);
}

// The other side: what is not the rule does not pass for it.
TEST(Selection, AnotherChoiceIsNoticed) {
  Scene quest("contiguous/f16/quest(top=0.25)", 333), topk("contiguous/f16/topk(rows=24)", 333);
  for (int head = 0; head < kGrouped.kv_heads; ++head) {
    const auto of = quest.candidates(head, {{"page", 16}, {"top", 25}, {"least", 1}});
    std::vector<int64_t> read = quest.read(head);
    EXPECT_EQ(reference::chosen_rows(of, 333), read);
    EXPECT_GT(reference::miss_of(quest.candidates(head, {{"page", 16}, {"top", 25}, {"least", 1}}, -1.0f),
                                 read, 333)
                  .worst,
              1e-2);
    EXPECT_TRUE(std::isinf(
        reference::miss_of(quest.candidates(head, {{"page", 16}, {"top", 30}, {"least", 1}}), read, 333)
            .worst));
    EXPECT_TRUE(std::isinf(
        reference::miss_of(quest.candidates(head, {{"page", 8}, {"top", 25}, {"least", 1}}), read, 333)
            .worst));
    read.pop_back();
    EXPECT_TRUE(std::isinf(reference::miss_of(of, read, 333).worst)) << "a page that is cut short";
    EXPECT_GT(reference::miss_of(topk.candidates(head, {{"rows", 24}}, -1.0f), topk.read(head), 333).worst,
              1e-2);
  }
}

// No key of a page scores more than the page's bound. That the bounds are near is not promised, that they differ is.
TEST(Selection, QuestsBoundsHold) {
  Scene quest("contiguous/f16/quest(top=0.25)", 333);
  const int d = kGrouped.head_dim, group = kGrouped.group();
  const Tokens last = slice(kGrouped, quest.all, 332, 1);
  for (int head = 0; head < kGrouped.kv_heads; ++head) {
    const auto of = quest.candidates(head, {{"page", 16}, {"top", 25}, {"least", 1}});
    const std::vector<float> keys = stored_keys(*quest.cache, quest.id, 0, head);
    for (int64_t row = 0; row < 320; ++row) {
      double score = 0.0;
      for (int g = 0; g < group; ++g) {
        for (int x = 0; x < d; ++x)
          score += double{last.q[static_cast<size_t>((head * group + g) * d + x)]} *
                   keys[static_cast<size_t>(row * d + x)];
      }
      EXPECT_LE(score, of.score[static_cast<size_t>(row / 16)] + 1e-9);
    }
    EXPECT_LT(*std::min_element(of.score.begin(), of.score.end() - 1),
              *std::max_element(of.score.begin(), of.score.end() - 1));
  }
}

TEST(Selection, AllPagesAndAllRowsAreWhatAllReads) {
  for (const char* codec : {"f16", "q8_0"}) {
    const std::string before = "paged/" + std::string(codec);
    const Scene all(before, 333), quest(before + "/quest(top=1)", 333), topk(before + "/topk(rows=400)", 333);
    EXPECT_EQ(all.out, quest.out);
    EXPECT_EQ(all.out, topk.out);
    EXPECT_NE(all.out, Scene(before + "/quest(top=0.5)", 333).out);
  }
}

// Pages that are read: at least the budget of them, the newest one, and the share of all rounded up.
TEST(Selection, TheNewestPageIsReadAndTheShareIsRoundedUp) {
  struct Pages {
    int64_t top, least, length, pages;
  };
  for (const auto& [top, least, length, pages] : {Pages{10, 1, 16, 1},
                                                  {10, 1, 17, 1},
                                                  {10, 1, 160, 1},
                                                  {10, 1, 161, 2},
                                                  {10, 1, 320, 2},
                                                  {10, 1, 321, 3},
                                                  {1, 6, 33, 3},
                                                  {1, 6, 96, 6},
                                                  {1, 6, 97, 6},
                                                  {1, 6, 320, 6},
                                                  {1, 6, 333, 6}}) {
    Scene quest("contiguous/f16/quest(top=" + print_hundredths(top) + ",least=" + std::to_string(least) + ")",
                length);
    for (int head = 0; head < kGrouped.kv_heads; ++head) {
      const std::vector<int64_t> read = quest.read(head);
      EXPECT_EQ(read.back(), length - 1);
      EXPECT_EQ(std::ssize(read), (pages - 1) * 16 + (length - 1) % 16 + 1);
      const auto of = quest.candidates(head, {{"page", 16}, {"top", top}, {"least", least}});
      EXPECT_EQ(reference::miss_of(of, read, length).worst, 0.0);
    }
  }
}

// A key that a query wants, far back: its page is read, which a window of as many rows has dropped.
TEST(Selection, QuestFindsWhatAWindowForgets) {
  Tokens all = make_tokens(kGrouped, 333, 9);
  const int d = kGrouped.head_dim;
  for (int head = 0; head < kGrouped.kv_heads; ++head) {
    for (int x = 0; x < d; ++x) {
      const float wanted = x % 2 ? 2.0f : -2.0f;
      all.k[static_cast<size_t>((head * 333 + 40) * d + x)] = wanted;
      for (int q = head * 3; q < head * 3 + 3; ++q)
        all.q[static_cast<size_t>((q * 333 + 332) * d + x)] = wanted;
    }
  }
  const auto answer = [&](const char* spec) {
    memory::Ledger ledger;
    const auto cache = build_cache(parse_spec(spec), kGrouped, ledger);
    const std::vector<int64_t> chunks{332, 1};
    return drive(*cache, cache->add_sequence(), all, chunks);
  };
  const auto full = answer("contiguous");
  EXPECT_LT(relative_l2(answer("contiguous/quest(top=0.1)"), full), 1e-3);
  EXPECT_LT(relative_l2(answer("contiguous/topk(rows=1)"), full), 1e-3);
  EXPECT_GT(relative_l2(answer("contiguous/ring(window=45)"), full), 0.5);
}

// Each token chooses for itself: a step of many has the bits of as many steps, and reads back the last one's rows.
TEST(Selection, StepsOfManyTokensAreStepsOfOne) {
  for (const char* text : {"paged/f16/quest(page=8,top=0.25)", "contiguous/q8_0/topk(rows=32)"}) {
    const Tokens all = make_tokens(kGrouped, 120, 4);
    memory::Ledger ledger;
    const auto cache = build_cache(parse_spec(text), kGrouped, ledger);
    const SequenceId a = cache->add_sequence(), b = cache->add_sequence();
    const int64_t whole = 120;
    const std::vector<float> together = drive(*cache, a, all, {&whole, 1});
    for (int64_t t = 0; t < whole; ++t) {
      const int64_t one = 1;
      const std::vector<float> alone = drive(*cache, b, slice(kGrouped, all, t, 1), {&one, 1});
      EXPECT_EQ(alone, slice(kGrouped, {whole, together, all.k, all.v}, t, 1).q) << text << ", token " << t;
    }
    EXPECT_EQ(cache->read_slots(a, 0, 1), cache->read_slots(b, 0, 1));
    const StepInput two{a, 2, all.q.data(), all.k.data(), all.v.data(), nullptr};
    EXPECT_THROW(cache->append(0, {&two, 1}), std::logic_error);
  }
}

// The authors' setting: the first layers read everything.
TEST(Selection, LayersMayDiffer) {
  memory::Ledger ledger;
  const auto cache = build_cache(parse_layer_specs("contiguous/f16/quest + 0:contiguous/f16"),
                                 ModelShape(kGrouped, {}), ledger);
  const SequenceId id = cache->add_sequence();
  const Tokens all = make_tokens(kGrouped, 320, 4);
  const std::vector<int64_t> chunks{319, 1};
  for (int layer = 0; layer < 2; ++layer) drive(*cache, id, all, chunks, layer);
  EXPECT_EQ(cache->read_slots(id, 0, 0).size(), 320u);
  EXPECT_EQ(cache->read_slots(id, 1, 0).size(), 32u);
}

TEST(Selection, WhatReadsAllRowsIsRefused) {
  EXPECT_EQ(reason_of("tiered/f16/topk"),
            "selection 'topk' reads single rows, but a tier's file is read a chunk at a time");
  EXPECT_EQ(reason_of("contiguous/h2o/topk"),
            "selection 'topk' leaves rows unread, but the retention needs the attention weight of each row");
  EXPECT_EQ(reason_of("contiguous/ring/quest"),
            "selection 'quest' keeps bounds of pages of rows, and the retention overwrites rows");
  EXPECT_EQ(reason_of("contiguous/kivi/quest"),
            "selection 'quest' keeps bounds of stored keys, and the codec encodes raw rows anew");
  EXPECT_EQ(reason_of("contiguous/kivi/topk"),
            "selection 'topk' reads single rows, and the codec encodes groups of 32 rows together");
  EXPECT_EQ(reason_of("contiguous/ring(positions=cache)/topk"),
            "selection 'topk' leaves rows unread, but positions=cache rotates every key at each read");
  EXPECT_EQ(reason_of("concat(read=repeat)/f16/topk"),
            "selection 'topk' chooses once per kv head, but read=repeat copies all of its rows for every "
            "query head");
}

}  // namespace
}  // namespace kv
