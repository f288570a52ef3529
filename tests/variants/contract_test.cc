// The contract of every cache, checked for the whole product of the registry: a new variant is tested here
// with no new code.
#include "tests/variants/contract.h"
#include "variants/cache/prefill.h"

#include <array>
#include <utility>

namespace kv {
namespace {

using namespace contract;

constexpr CacheShape kShapes[] = {
    {.layers = 1, .q_heads = 2, .kv_heads = 2, .head_dim = 64, .max_tokens = 192, .max_sequences = 4},  // MHA
    {.layers = 2, .q_heads = 6, .kv_heads = 2, .head_dim = 32, .max_tokens = 192, .max_sequences = 4},  // GQA
    {.layers = 1,
     .q_heads = 4,
     .kv_heads = 1,
     .head_dim = 32,
     .max_tokens = 192,
     .max_sequences = 4,
     .rope = {.theta = 500, .pairs = RopePairs::kHalfSplit}},  // MQA
};

constexpr int64_t kTokens = 161;  // length of a stream that grows token by token

// Around every border that caches have at these sizes: groups of 32, blocks of 16, tiles of 64.
constexpr int64_t kLengths[] = {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 161};

class Contract : public testing::TestWithParam<Spec> {};

INSTANTIATE_TEST_SUITE_P(All, Contract, testing::ValuesIn(sampled(supported_specs())), test_name);

// Each token that was kept is in the spans once.
void expect_kept_in_spans(Cache& cache, SequenceId id, int64_t tokens) {
  for (int head = 0; head < cache.shape().kv_heads; ++head) {
    int64_t rows = 0;
    for (const Span& span : cache.spans(id, 0, head)) rows += span.rows;
    const auto kept = cache.kept(id, 0, head);
    ASSERT_EQ(rows, static_cast<int64_t>(kept.size())) << "after " << tokens << " tokens";
    std::array<bool, kTokens> seen{};
    for (const int64_t token : kept) {
      ASSERT_TRUE(token >= 0 && token < tokens) << "token " << token << " after " << tokens;
      bool& before = seen[static_cast<size_t>(token)];
      if (std::exchange(before, true)) FAIL() << "token " << token << " is kept twice";
    }
  }
}

// Each stored row is that of the token that kept() names, within the codec's declared interval.
void expect_rows_within_interval(Cache& cache, SequenceId id, const Tokens& all) {
  const Codec codec = codec_of(cache.spec(0)).make(cache.spec(0).codec);
  const int head_dim = cache.shape().head_dim;
  for (int head = 0; head < cache.shape().kv_heads; ++head) {
    const Stored stored = read_back(cache, id, 0, head);
    // Raw rows are not the codec's; they are checked by their own bound below.
    std::vector<bool> is_encoded;
    for (const Span& span : cache.spans(id, 0, head))
      is_encoded.insert(is_encoded.end(), static_cast<size_t>(span.rows),
                        span.k.encoding == codec.k && span.v.encoding == codec.v);
    const std::vector<int64_t> kept = cache.kept(id, 0, head);
    const auto check = [&](const std::vector<float>& got, const std::vector<float>& came,
                           const Interval& bound, const char* side) {
      std::vector<float> g[2], w[2];  // raw, encoded
      for (size_t row = 0; row < kept.size(); ++row) {
        const auto from = came.begin() + (head * all.n + kept[row]) * head_dim;
        const auto stored_row = got.begin() + static_cast<int64_t>(row) * head_dim;
        g[is_encoded[row]].insert(g[is_encoded[row]].end(), stored_row, stored_row + head_dim);
        w[is_encoded[row]].insert(w[is_encoded[row]].end(), from, from + head_dim);
      }
      if (!g[1].empty()) {
        const double error = relative_l2(g[1], w[1]);
        EXPECT_GE(error, bound.low) << side << " is too good, head_dim " << head_dim;
        EXPECT_LE(error, bound.high) << side << ", head_dim " << head_dim;
      }
      EXPECT_LE(relative_l2(g[0], w[0]), 3e-4) << side << " of the raw rows";
    };
    check(stored.k, all.k, codec.k_error, "K");
    check(stored.v, all.v, codec.v_error, "V");
  }
}

// One stream for what must hold as it grows: which tokens are kept, what is stored of them, and how many bytes that takes.
TEST_P(Contract, KeepsItsTokensInTheBytesOfTheClosedForm) {
  for (const CacheShape& shape : kShapes) {
    const Tokens all = make_tokens(shape, kTokens, 3);
    memory::Ledger ledger;
    {
      const auto cache = build_cache(GetParam(), shape, ledger);
      const SequenceId id = cache->add_sequence();
      for (int64_t n = 1; n <= kTokens; ++n) {
        for (int layer = 0; layer < shape.layers; ++layer) step(*cache, id, all, n - 1, 1, layer);
        ASSERT_NO_FATAL_FAILURE(expect_kept_in_spans(*cache, id, n));
        ASSERT_EQ(held_bytes(ledger), predicted_bytes(GetParam(), shape, {&n, 1})) << "at " << n << " tokens";
        if (n == 160) expect_rows_within_interval(*cache, id, all);
      }
      ledger.assert_balanced();
      cache->release(id);
      const SequenceId again = cache->add_sequence();
      const int64_t n = 3;
      for (int layer = 0; layer < shape.layers; ++layer) step(*cache, again, all, 0, n, layer);
      EXPECT_EQ(held_bytes(ledger), predicted_bytes(GetParam(), shape, {&n, 1})) << "after release";
    }
    EXPECT_EQ(held_bytes(ledger) + ledger.workspace().current_bytes, 0) << "a cache leaves bytes behind";
  }
}

// Attention over what is stored equals FP64 attention over the same rows, those that are read, at every length and for every
// shape.
TEST_P(Contract, AttentionEqualsFp64OnTheStoredRows) {
  for (const CacheShape& shape : kShapes) {
    for (const int64_t length : kLengths) {
      const Tokens all = make_tokens(shape, length, static_cast<uint64_t>(length));
      memory::Ledger ledger;
      const auto cache = build_cache(GetParam(), shape, ledger);
      const SequenceId id = cache->add_sequence();
      std::vector<int64_t> chunks{length - 1, 1};
      if (length == 1) chunks = {1};
      const std::vector<float> out = drive(*cache, id, all, chunks);
      const Tokens last = slice(shape, all, length - 1, 1);
      std::vector<float> want;
      for (int head = 0; head < shape.kv_heads; ++head) {
        const Stored stored = rows_read(*cache, id, 0, head, read_back(*cache, id, 0, head));
        const auto kept = cache->kept(id, 0, head);
        for (int h = head * shape.group(); h < (head + 1) * shape.group(); ++h) {
          const float* q = last.q.data() + h * shape.head_dim;
          const auto result = attend_stored(*cache, {q, static_cast<size_t>(shape.head_dim)}, stored, kept);
          for (int x = 0; x < shape.head_dim; ++x) want.push_back(static_cast<float>(result.out[x]));
        }
      }
      ASSERT_LT(relative_l2(out, want), attention_tolerance(GetParam()))
          << "length " << length << " head_dim " << shape.head_dim;
    }
  }
}

// A chunk on a cached prefix, and a whole prefill: causal inside, everything before visible.
TEST_P(Contract, ChunksAreCausal) {
  for (const CacheShape& shape : kShapes) {
    const Tokens all = make_tokens(shape, 100, 5);
    const auto run = [&](std::vector<int64_t> chunks) {
      memory::Ledger ledger;
      const auto cache = build_cache(GetParam(), shape, ledger);
      return drive(*cache, cache->add_sequence(), all, chunks);
    };
    const bool exact_past = !Codec(codec_of(GetParam()).make(GetParam().codec)).residual &&
                            codec_of(GetParam()).make(GetParam().codec).unit_rows() == 1;
    // With a raw tail, a token's neighbours may be encoded by the time that a chunk attends: only row-wise
    // codecs agree.
    if (!exact_past || prefills_full(GetParam())) continue;
    const std::vector<float> whole = run({100}), split = run({63, 37}), single = run(ones(100));
    std::vector<float> last_of_whole, last_of_split;
    for (int h = 0; h < shape.q_heads; ++h) {
      const auto w = whole.begin() + (h * 100 + 99) * shape.head_dim;
      const auto s = split.begin() + (h * 37 + 36) * shape.head_dim;
      last_of_whole.insert(last_of_whole.end(), w, w + shape.head_dim);
      last_of_split.insert(last_of_split.end(), s, s + shape.head_dim);
    }
    EXPECT_LT(relative_l2(last_of_whole, single), attention_tolerance(GetParam()));
    // If the length of the first chunk decides which rows are kept (snapkv), other chunks are another experiment.
    const RetentionEntry& retention = retention_of(GetParam());
    const auto slots = [&](int64_t prompt) {
      return retention.slots(GetParam().retention, {shape.max_tokens, 100, prompt});
    };
    if (slots(63) == slots(1)) {
      EXPECT_LT(relative_l2(last_of_split, single), attention_tolerance(GetParam()));
    }
    // And an early query of the whole prefill equals that of a prefill that ends there.
    const Tokens head = slice(shape, all, 0, 40);
    memory::Ledger ledger;
    const auto cache = build_cache(GetParam(), shape, ledger);
    const int64_t n = 40;
    const std::vector<float> early = drive(*cache, cache->add_sequence(), head, {&n, 1});
    std::vector<float> got, want;
    for (int h = 0; h < shape.q_heads; ++h) {
      got.insert(got.end(), whole.begin() + h * 100 * shape.head_dim,
                 whole.begin() + (h * 100 + 40) * shape.head_dim);
      want.insert(want.end(), early.begin() + h * 40 * shape.head_dim,
                  early.begin() + (h + 1) * 40 * shape.head_dim);
    }
    EXPECT_LT(relative_l2(got, want), attention_tolerance(GetParam()));
  }
}

// Running out of memory anywhere leaves every sequence as it was.
TEST_P(Contract, OutOfMemoryLosesNothing) {
  const CacheShape& shape = kShapes[1];
  const Tokens all = make_tokens(shape, 150, 41);
  memory::Ledger unlimited;
  const auto whole = build_cache(GetParam(), shape, unlimited);
  const SequenceId reference = whole->add_sequence();
  std::vector<std::vector<float>> outputs;  // by token
  for (int64_t i = 0; i < 150; ++i) outputs.push_back(step(*whole, reference, all, i, 1));
  const int64_t peak = unlimited.peak_total_bytes();
  for (const int64_t limit : {peak / 3, peak / 2, peak * 3 / 4, peak - 1}) {
    memory::Ledger ledger(limit);
    std::unique_ptr<Cache> cache;
    SequenceId id = -1;
    try {
      cache = build_cache(GetParam(), shape, ledger);
      id = cache->add_sequence();
    } catch (const std::bad_alloc&) {
      continue;  // too little to begin with
    }
    int64_t done = 0;
    try {
      for (; done < 150; ++done)
        EXPECT_EQ(step(*cache, id, all, done, 1), outputs[static_cast<size_t>(done)]);
    } catch (const std::bad_alloc&) {
    }
    ASSERT_GE(cache->tokens(id, 0), done);
    ledger.assert_balanced();
  }
}

}  // namespace
}  // namespace kv
