// k_mean=removed: what it gains where keys have a mean, and that nothing of it depends on how tokens come.
#include "tests/variants/contract.h"

namespace kv {
namespace {

using namespace contract;

constexpr CacheShape kOfMeans{
    .layers = 1, .q_heads = 4, .kv_heads = 2, .head_dim = 64, .max_tokens = 300, .max_sequences = 2};
constexpr int64_t kMeanRows = 32;

// A quarter of the channels have a mean of 25, of alternating sign: a quantiser's step is then set by what all keys have alike.
Tokens with_mean(int64_t n) {
  Tokens all = make_tokens(kOfMeans, n, 5);
  for (size_t i = 0; i < all.k.size(); i += 4) all.k[i] += i % 8 == 0 ? 25.0f : -25.0f;
  return all;
}

struct Filled {
  Filled(const std::string& spec, const Tokens& all, std::vector<int64_t> chunks)
      : cache(build_cache(parse_spec(spec), kOfMeans, ledger)), id(cache->add_sequence()) {
    out = drive(*cache, id, all, chunks);
  }
  memory::Ledger ledger;
  std::unique_ptr<Cache> cache;
  SequenceId id;
  std::vector<float> out;
};

// FP64 attention of the newest token over the keys as they came.
std::vector<float> over_keys_as_they_came(const Tokens& all) {
  std::vector<float> out;
  const int64_t d = kOfMeans.head_dim;
  for (int head = 0; head < kOfMeans.q_heads; ++head) {
    const auto rows = [&](const std::vector<float>& from, int of, int64_t first) {
      const auto at = from.begin() + (of * all.n + first) * d;
      return std::vector<float>(at, at + (all.n - first) * d);
    };
    const int kv_head = head / kOfMeans.group();
    const auto result = reference::attend(rows(all.q, head, all.n - 1), rows(all.k, kv_head, 0),
                                          rows(all.v, kv_head, 0), all.n);
    for (int i = 0; i < d; ++i) out.push_back(static_cast<float>(result.out[i]));
  }
  return out;
}

// The largest of a block or row, which sets the step, is 27 with the mean and some 3 without it; V's error stays as it is.
TEST(KMean, RemovedLosesALotLessWhereKeysHaveOne) {
  const Tokens all = with_mean(200);
  for (const std::string codec : {"q8_0", "q4_0", "token(bits=6)"}) {
    const std::string removed =
        codec.substr(0, codec.find(')')) + (codec.back() == ')' ? ",k_mean=removed)" : "(k_mean=removed)");
    const Filled kept("contiguous/" + codec, all, {199, 1}), without("contiguous/" + removed, all, {199, 1});
    const std::vector<float> want = over_keys_as_they_came(all);
    double errors[2];
    int i = 0;
    for (const Filled* of : {&kept, &without}) errors[i++] = relative_l2(of->out, want);
    EXPECT_GT(errors[0] / errors[1], 5.5) << codec << ": " << errors[0] << " and " << errors[1];
    EXPECT_LT(errors[0] / errors[1], 11.0) << codec << ": " << errors[0] << " and " << errors[1];
  }
}

TEST(KMean, IsOfTheFirstKeysAloneAndTheSameHoweverTheyCome) {
  const Tokens all = with_mean(100);
  const std::string spec = "contiguous/q4_0(k_mean=removed,residual=40)";
  Filled whole(spec, all, {100}), ones(spec, all, std::vector<int64_t>(100, 1)),
      some(spec, all, {31, 2, 40, 27});
  for (int head = 0; head < kOfMeans.kv_heads; ++head) {
    const Stored want = read_back(*whole.cache, whole.id, 0, head);
    const std::span<const float> mean = whole.cache->removed_mean(whole.id, 0, head);
    ASSERT_EQ(mean.size(), 64u);
    for (int i = 0; i < 64; ++i) {
      double sum = 0.0;
      for (int64_t t = 0; t < kMeanRows; ++t) sum += all.k[static_cast<size_t>((head * all.n + t) * 64 + i)];
      EXPECT_NEAR(mean[i], sum / kMeanRows, 25.0 / 2048);  // keys lie there as f16
    }
    for (Filled* other : {&ones, &some}) {
      const Stored got = read_back(*other->cache, other->id, 0, head);
      EXPECT_EQ(got.k, want.k);
      EXPECT_EQ(got.v, want.v);
    }
  }
}

TEST(KMean, RefusesWhatWouldNoticeThatScoresMove) {
  Filled some("contiguous/q8_0(k_mean=removed)", with_mean(40), {40});
  const Tokens one = make_tokens(kOfMeans, 1, 9);
  std::vector<float> out(one.q.size()), sinks(4);
  StepInput in{some.id, 1, one.q.data(), one.k.data(), one.v.data(), out.data()};
  in.score_cap = 30.0f;
  EXPECT_THROW(some.cache->step(0, {&in, 1}), std::invalid_argument);
  in.score_cap = 0.0f;
  in.sink_logits = sinks.data();
  EXPECT_THROW(some.cache->step(0, {&in, 1}), std::invalid_argument);
  CacheShape latent = kOfMeans;
  latent.kv_heads = 1;
  latent.value_dim = 32;
  EXPECT_NE(unsupported_reason(parse_spec("contiguous/q8_0(k_mean=removed)"), latent), "");
}

}  // namespace
}  // namespace kv
