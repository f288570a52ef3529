// Codecs in whole caches: what they declare, the bytes they hold, what they refuse, and which axis of K suits
// scales.
#include <gtest/gtest.h>

#include "harness/model/token_ids.h"
#include "harness/workload/model_workload.h"
#include "harness/workload/workload.h"
#include "tests/harness/model/model_support.h"
#include "tests/kernels/format/unit.h"
#include "tests/normal.h"
#include "tests/variants/contract.h"

namespace kv {
namespace {

using contract::relative_l2;
using test::Unit;

// Every codec at every width: the declared interval holds for N(0,1) rows at every head_dim, for K and V.
TEST(Codec, DeclaredErrorsHoldForAllWidthsAndHeadDims) {
  std::vector<std::string> specs{"bf16",
                                 "fp8",
                                 "fp8(format=e5m2)",
                                 "q8_0",
                                 "q4_0",
                                 "q4_1",
                                 "q5_0",
                                 "q5_1",
                                 "q6_0",
                                 "iq4_nl",
                                 "split(k=q8_0,v=q4_0)",
                                 "mxfp8",
                                 "mxfp8(format=e5m2)",
                                 "mxfp4",
                                 "nvfp4",
                                 "nvfp4(tensor=one)",
                                 "vq",
                                 "vq(bits=1)"};
  for (const char* bits : {"2", "3", "4"}) {
    specs.push_back(std::string("turbo(bits=") + bits + ")");
    specs.push_back(std::string("turbo(qjl=on,bits=") + bits + ")");
    specs.push_back(std::string("turbo(norm=on,bits=") + bits + ")");
    specs.push_back(std::string("turbo(norm=on,qjl=on,bits=") + bits + ")");
  }
  for (int bits = 1; bits <= 16; ++bits) {
    const std::string b = "bits=" + std::to_string(bits);
    specs.push_back("token(" + b + ")");
    if (bits > 1) specs.push_back("token(" + b + ",mode=symmetric)");
    for (const char* group : {"8", "32", "256"}) specs.push_back("kivi(" + b + ",group=" + group + ")");
    specs.push_back("kivi(" + b + ",k_axis=token)");
    specs.push_back("kivi(" + b + ",v_axis=channel)");
  }
  test::Normal normal(12);
  for (const std::string& text : specs) {
    const Spec spec = parse_spec("contiguous/" + text);
    const Codec codec = codec_of(spec).make(spec.codec);
    for (const int d : {32, 64, 128, 256, 512}) {
      if (!unsupported_reason(codec.k, d).empty()) continue;
      for (const auto& [e, bound] : {std::pair{codec.k, codec.k_error}, std::pair{codec.v, codec.v_error}}) {
        std::vector<float> want, got;
        while (want.size() < 20000) {
          std::vector<float> rows(static_cast<size_t>(e.group * d));
          for (float& x : rows) x = normal();
          const std::vector<float> back = Unit(e, d, rows).decoded();
          want.insert(want.end(), rows.begin(), rows.end());
          got.insert(got.end(), back.begin(), back.end());
        }
        const double error = relative_l2(got, want);
        EXPECT_GE(error, bound.low) << text << " " << encoding_name(e) << " head_dim " << d;
        EXPECT_LE(error, bound.high) << text << " " << encoding_name(e) << " head_dim " << d;
        EXPECT_LT(bound.high, 2.2 * bound.low) << text << ": too wide to mean anything";
      }
    }
  }
}

// bits/16 of f16, and the metadata: bytes of K and V of one head, written out.
TEST(Codec, BytesAreCodesPlusMetadata) {
  struct Expected {
    const char* codec;
    int64_t payload, metadata;
  };
  constexpr int64_t kRows = 256, kDim = 128, kHalf = 2 * kRows * kDim * 2;  // f16's bytes of K and V
  constexpr int64_t kTokenMeta = kRows * 8;                                 // an f32 scale and zero a row
  constexpr int64_t kChannelMeta = kRows / 32 * kDim * 4;  // an f16 scale and zero a channel and group
  constexpr int64_t kTail = 2 * 32 * kDim * 2;             // residual=0: one group of f16 rows
  const Expected table[] = {
      {"f16", kHalf, 0},
      {"bf16", kHalf, 0},
      {"fp8", kHalf / 2, 2 * kRows * 4},
      {"fp8(format=e5m2)", kHalf / 2, 2 * kRows * 4},
      {"q8_0", kHalf / 2, 2 * kRows * 4 * 2},
      {"q4_0", kHalf / 4, 2 * kRows * 4 * 2},
      {"q4_1", kHalf / 4, 2 * kRows * 4 * 4},
      {"q5_0", kHalf * 5 / 16, 2 * kRows * 4 * 2},
      {"q5_1", kHalf * 5 / 16, 2 * kRows * 4 * 4},
      {"q6_0", kHalf * 6 / 16, 2 * kRows * 4 * 2},
      {"iq4_nl", kHalf / 4, 2 * kRows * 4 * 2},
      {"token", kHalf / 2, 2 * kTokenMeta},
      {"token(bits=3)", kHalf * 3 / 16, 2 * kTokenMeta},
      {"token(bits=1)", kHalf / 16, 2 * kTokenMeta},
      {"token(bits=16)", kHalf, 2 * kTokenMeta},
      {"token(bits=4,mode=symmetric)", kHalf / 4, kTokenMeta},
      {"split(k=q8_0,v=q4_0)", kHalf * 3 / 8, 2 * kRows * 4 * 2},
      {"split(k=kivi(bits=2,residual=0),v=turbo(bits=3))", kHalf / 16 + kHalf * 3 / 32 + kTail,
       kChannelMeta + kRows * 2},
      {"split(k=nvfp4,v=kivi(residual=0,group=64))", kHalf / 4 + 2 * kTail, kRows * (8 + 4 + 8)},
      {"q8_0(first=4)", kHalf / 2 + kTail / 8, 2 * kRows * 4 * 2},
      {"kivi(residual=0,first=4)", kHalf / 4 + kTail + kTail / 8, kChannelMeta + kTokenMeta},
      {"kivi(residual=0)", kHalf / 4 + kTail, kChannelMeta + kTokenMeta},
      {"kivi(bits=2,residual=0)", kHalf / 8 + kTail, kChannelMeta + kTokenMeta},
      {"kivi(k_bits=12,v_bits=4,residual=0)", kHalf / 2 + kTail, 2 * kChannelMeta + kTokenMeta},
      {"kivi(k_axis=token,residual=0)", kHalf / 4 + kTail, 2 * kTokenMeta},
      {"kivi(k_axis=token,v_axis=channel,residual=0)", kHalf / 4 + kTail, kTokenMeta + kChannelMeta},
      {"kivi(v_axis=channel,residual=0)", kHalf / 4 + kTail, 2 * kChannelMeta},
      {"mxfp8", kHalf / 2, 2 * kRows * 4},
      {"mxfp4", kHalf / 4, 2 * kRows * 4},
      {"nvfp4", kHalf / 4, 2 * kRows * (8 + 4)},
      {"nvfp4(tensor=one)", kHalf / 4, 2 * kRows * 8},
      {"turbo", kHalf / 4, 2 * kRows * 2},
      {"turbo(bits=2,norm=on)", kHalf / 8, 2 * kRows * 2},
      {"turbo(bits=3)", kHalf * 3 / 16, 2 * kRows * 2},
      {"turbo(bits=3,qjl=on)", kHalf * 3 / 16, kRows * (4 + 2)},
      {"vq", kHalf / 8, 0},
      {"vq(bits=1)", kHalf / 16, 0},
      {"kivi(k_bits=4,v_bits=2)", kHalf * 3 / 16 + 5 * kTail, kChannelMeta + kTokenMeta},
  };
  const CacheShape shape{.head_dim = kDim, .max_tokens = kRows};
  for (const Expected& want : table) {
    memory::Ledger ledger;
    const auto cache = build_cache(parse_spec(std::string("contiguous/") + want.codec), shape, ledger);
    cache->add_sequence();
    EXPECT_EQ(ledger.payload().current_bytes, want.payload) << want.codec;
    EXPECT_EQ(ledger.metadata().current_bytes, want.metadata) << want.codec;
  }
}

TEST(Codec, AHeadDimThatBlocksDoNotFitIsRefusedInOneLine) {
  memory::Ledger ledger;
  for (const char* spec : {"contiguous/q8_0", "contiguous/q4_0", "contiguous/split(v=q4_0)"}) {
    const std::string said = test::refusal([&] { build_cache(parse_spec(spec), {.head_dim = 8}, ledger); });
    EXPECT_TRUE(test::contains(said, "head_dim must be a multiple of 32, not 8")) << said;
    EXPECT_EQ(unsupported_reason(parse_spec(spec)), "");
    EXPECT_NE(unsupported_reason(parse_spec(spec), 24), "");
  }
  const Spec spec = parse_spec("contiguous/token(bits=1,mode=symmetric)");
  EXPECT_NE(unsupported_reason(spec), "");
  EXPECT_THROW(build_cache(spec, {.head_dim = 64}, ledger), std::invalid_argument);
}

// ---- per channel against per token ----

// Error of the scores q k^T in relative L2, of layer `layer` of a workload whose keys went through `codec`:
// what attention feels. Every 16th token's query meets every key.
double score_error(const workload::Workload& workload, int layer, const std::string& codec, int64_t tokens) {
  const workload::WorkloadShape& w = workload.shape();
  const CacheShape shape{
      .q_heads = w.q_heads, .kv_heads = w.kv_heads, .head_dim = w.head_dim, .max_tokens = tokens};
  const auto floats = [&](int heads) { return static_cast<size_t>(heads * tokens * w.head_dim); };
  std::vector<float> q(floats(w.q_heads)), k(floats(w.kv_heads)), v(k.size());
  workload.read(0, layer, 0, tokens, q.data(), k.data(), v.data());
  memory::Ledger ledger;
  const auto cache = build_cache(parse_spec("contiguous/" + codec), shape, ledger);
  const SequenceId id = cache->add_sequence();
  const StepInput in{id, tokens, nullptr, k.data(), v.data(), nullptr};
  cache->append(0, {&in, 1});
  std::vector<float> got, want;
  for (int h = 0; h < w.q_heads; ++h) {
    const int kv_head = h / shape.group();
    const std::vector<float> stored = contract::read_back(*cache, id, 0, kv_head).k;
    for (int64_t i = 0; i < tokens; i += 16) {
      for (int64_t j = 0; j < tokens; ++j) {
        double exact = 0.0, decoded = 0.0;
        for (int d = 0; d < w.head_dim; ++d) {
          const double x = q[static_cast<size_t>((h * tokens + i) * w.head_dim + d)];
          exact += x * k[static_cast<size_t>((kv_head * tokens + j) * w.head_dim + d)];
          decoded += x * stored[static_cast<size_t>(j * w.head_dim + d)];
        }
        want.push_back(static_cast<float>(exact));
        got.push_back(static_cast<float>(decoded));
      }
    }
  }
  return relative_l2(got, want);
}

// The error of per-token K over that of per-channel K, all else equal. Groups of head_dim tokens: then as
// many numbers share a scale along either axis, and only the axis differs.
double axis_gap(const workload::Workload& workload, int layer, int bits, int64_t tokens) {
  const std::string parameters =
      "bits=" + std::to_string(bits) + ",group=" + std::to_string(workload.shape().head_dim) + ",residual=0";
  return score_error(workload, layer, "kivi(" + parameters + ",k_axis=token)", tokens) /
         score_error(workload, layer, "kivi(" + parameters + ")", tokens);
}

TEST(Kivi, PerChannelKeysWinWhereChannelsHaveOutliersAndOnlyThere) {
  const workload::WorkloadShape shape{.layers = 1, .q_heads = 2, .kv_heads = 2, .head_dim = 128};
  for (const uint64_t seed : {1, 2, 3}) {
    const auto outliers = workload::make_synthetic("outliers", shape, seed);
    const auto control = workload::make_synthetic("gaussian", shape, seed);
    for (const int bits : {2, 4, 8}) {
      const double gap = axis_gap(*outliers, 0, bits, 256), none = axis_gap(*control, 0, bits, 256);
      EXPECT_GT(gap, 8.0) << bits << " bits, seed " << seed;
      EXPECT_LT(gap, 14.0) << bits << " bits, seed " << seed;
      EXPECT_GT(none, 0.95) << bits << " bits, seed " << seed;
      EXPECT_LT(none, 1.03) << bits << " bits, seed " << seed;
    }
  }
}

TEST(Kivi, PerChannelKeysWinInEveryLayerOfRealModels) {
  if (test::data_is_absent()) GTEST_SKIP() << test::why_skipped();
  struct Case {
    std::string name;
    double low, high;
  };
  const test::TempFile story(
      test::read_all(test::data_path("text/tinystories_valid_sample.txt")).substr(0, 1000));
  for (const Case& c : {Case{"stories260K", 3.5, 7.0}, Case{"babyllama105", 1.1, 2.0}}) {
    const std::string folder = test::converted(c.name);
    const model::Model model(folder);
    std::vector<int> ids =
        model::read_tokens(story.path(), folder + "/tokenizer.json", model.config().vocab_size);
    ASSERT_GE(ids.size(), 256u);
    ids.resize(256);
    const auto workload = workload::capture(model, ids, model::full_attention(model.config()), c.name, 64);
    for (int layer = 0; layer < workload->shape().layers; ++layer) {
      for (const int bits : {2, 4, 8}) {
        const double gap = axis_gap(*workload, layer, bits, 256);
        EXPECT_GT(gap, c.low) << c.name << " layer " << layer << " bits " << bits;
        EXPECT_LT(gap, c.high) << c.name << " layer " << layer << " bits " << bits;
      }
    }
  }
}

}  // namespace
}  // namespace kv
