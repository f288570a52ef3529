// The closed form of what queries read encoded and what they no longer read, against the spans of a cache that took the same steps.
#include <gtest/gtest.h>

#include "tests/variants/contract.h"
#include "variants/model_cache/layer_groups.h"

namespace kv {
namespace {

using namespace contract;

constexpr CacheShape kShape{
    .layers = 1, .q_heads = 4, .kv_heads = 2, .head_dim = 64, .max_tokens = 200, .max_sequences = 1};

struct Case {
  const char* spec;
  const char* codec;  // of the rows that count as encoded; f32: none do
  int64_t prompt = 0, step = 1, first = 0, tokens = 200;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.spec << " after " << c.prompt; }

class RowSharesOf : public testing::TestWithParam<Case> {};

// Queries of a step of several tokens see the spans at its end up to themselves; none is dropped there in these cases.
TEST_P(RowSharesOf, AreWhatTheSpansShow) {
  const Case& c = GetParam();
  CacheShape shape = kShape;
  shape.max_tokens = c.tokens;
  const Tokens all = make_tokens(shape, c.tokens, 1);
  memory::Ledger ledger;
  const auto cache = build_cache(parse_spec(c.spec), shape, ledger);
  const SequenceId id = cache->add_sequence();
  const Spec encoded_as = parse_spec(std::string("contiguous/") + c.codec);
  const Encoding wanted = codec_of(encoded_as).make(encoded_as.codec).k;
  RowShares sum;
  for (int64_t begin = 0, n; begin < c.tokens; begin += n) {
    n = begin == 0 && c.prompt > 0 ? c.prompt : std::min(c.step, c.tokens - begin);
    step(*cache, id, all, begin, n);
    for (int64_t at = std::max(begin, c.first); at < begin + n; ++at) {
      for (int head = 0; head < shape.kv_heads; ++head) {
        std::vector<bool> encoded;
        for (const Span& span : cache->spans(id, 0, head))
          encoded.insert(encoded.end(), static_cast<size_t>(span.rows), span.k.encoding == wanted);
        const std::vector<int64_t> read = cache->read_slots(id, 0, head), kept = cache->kept(id, 0, head);
        double seen = 0, as_stored = 0;
        for (const int64_t slot : read) {
          if (kept[static_cast<size_t>(slot)] > at) continue;
          ++seen;
          as_stored += wanted != Encoding{} && encoded[static_cast<size_t>(slot)];
        }
        const auto rows = static_cast<double>(at + 1);
        sum.encoded += as_stored / rows / shape.kv_heads;
        sum.dropped += (rows - seen) / rows / shape.kv_heads;
      }
    }
  }
  const auto queries = static_cast<double>(c.tokens - c.first);
  const RowShares shares =
      row_shares(LayerSpecs(parse_spec(c.spec)), ModelShape(shape, {}),
                 {.length = c.tokens, .first = c.first, .prompt = c.prompt, .step = c.step});
  EXPECT_NEAR(shares.encoded, sum.encoded / queries, 1e-12);
  EXPECT_NEAR(shares.dropped, sum.dropped / queries, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(
    Specs, RowSharesOf,
    testing::Values(Case{"contiguous", "f32"}, Case{"contiguous/q8_0", "q8_0"}, Case{"contiguous/f16", "f16"},
                    Case{"contiguous/kivi(bits=2)", "kivi(bits=2)"},
                    Case{"contiguous/kivi(bits=2,residual=40)", "kivi(bits=2)", 0, 48},
                    Case{"contiguous/kivi(bits=2,residual=0)", "kivi(bits=2)", 100},
                    Case{"contiguous/q4_0(first=4)", "q4_0", 50, 1, 50},
                    Case{"contiguous/q4_0(residual=20,first=4)", "q4_0"},
                    Case{"contiguous/f16/ring(window=30,sinks=4)", "f16"},
                    Case{"contiguous/q8_0(first=4)/ring(window=30,sinks=4)", "q8_0"},
                    Case{"contiguous/f16/ring(window=300)", "f16"},
                    Case{"contiguous/kivi(bits=2,group=8,residual=16)/ring(window=60)",
                         "kivi(bits=2,group=8)"},
                    Case{"contiguous/q4_0(residual=20,first=4)/ring(window=50,sinks=9)", "q4_0"},
                    Case{"contiguous/f16/h2o(heavy=20,recent=20)", "f16", 0, 1, 150},
                    Case{"paged/f16/duo(retrieval=1,recent=30,sinks=2)", "f16"},
                    Case{"contiguous/f16/snapkv(budget=40,window=8)", "f16", 160, 1, 160},
                    Case{"contiguous/f16/quest(page=16,top=0.25)", "f16"},
                    Case{"contiguous/f16/topk(rows=32)", "f16"},
                    Case{"tiered(hot=100,warm=600)/q8_0", "q8_0", 0, 1, 0, 1100}));

double raw_share(const char* spec, int64_t tokens, int64_t prompt = 0) {
  const Queries queries{.length = tokens, .prompt = prompt};
  return 1 - row_shares(LayerSpecs(parse_spec(spec)), ModelShape(kShape, {}), queries).encoded;
}

TEST(RowShares, OfAResidualFallWithTheLength) {
  for (const auto& [tokens, share] :
       {std::pair{128, 1.0}, {512, 0.64}, {1024, 0.415}, {2048, 0.26}, {8192, 0.09}})
    EXPECT_NEAR(raw_share("contiguous/kivi(bits=2)", tokens), share, 0.005) << tokens;
  // A prompt reads its rows as they are stored, or as they came.
  EXPECT_EQ(raw_share("contiguous/kivi(bits=2,residual=0)", 512, 512), 0);
  EXPECT_EQ(raw_share("contiguous/kivi(bits=2,residual=0,prefill=full)", 512, 512), 1);
}

// A model's own window takes nothing that its full cache has, and layers count alike.
TEST(RowShares, AreOfWhatTheModelReads) {
  CacheShape two = kShape;
  two.layers = 2;
  const ModelShape shape(two, {{.kind = "full"}, {.kind = "sliding", .window = 20}});
  const auto shares = [&](const char* text) {
    return row_shares(parse_layer_specs(text), shape, {.length = 200, .first = 199});
  };
  EXPECT_EQ(shares("contiguous/q8_0").dropped, 0);
  EXPECT_EQ(shares("contiguous/q8_0").encoded, 1);
  EXPECT_EQ(shares("contiguous/f16 + 1:contiguous").encoded, 0.5);
  EXPECT_DOUBLE_EQ(shares("contiguous/f16/ring(window=50)").dropped, 0.5 * 150 / 200);
}

TEST(Queries, OfALongerContextHaveItsTokensInFront) {
  const Queries queries = Queries{.length = 500, .first = 450, .prompt = 400, .step = 1}.in(800);
  EXPECT_EQ(std::vector({queries.length, queries.first, queries.prompt}),
            (std::vector<int64_t>{800, 750, 700}));
  EXPECT_EQ(queries.in(100).length, 800);
}

}  // namespace
}  // namespace kv
