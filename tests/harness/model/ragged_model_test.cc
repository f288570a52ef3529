// Sequences of any lengths in one pass: each predicts what it predicts alone.
#include "harness/model/ragged_model.h"

#include <gtest/gtest.h>

#include "harness/memory/ledger.h"
#include "harness/model/cached_model.h"
#include "tests/harness/model/tiny_hugging_face.h"
#include "tests/temp.h"

namespace kv {
namespace {

using model::RaggedModel;

constexpr int kVocab = 40, kSequences = 5;
constexpr int64_t kMostTokens = 96;
// From so many rows on the sums of 16-bit weights' products do not depend on their number (harness/model/weights.h).
constexpr int64_t kLeastRows = 9;
constexpr double kRounding = 1e-5;

const model::Model& ragged_model() {
  static const test::TinyModel file({.dim = 128, .hidden = 64, .vocab = kVocab, .seq_len = kMostTokens});
  static const model::Model model(file.path());
  return model;
}

std::vector<int> text_of(int sequence) {
  std::vector<int> ids;
  for (int i = 0; i < kMostTokens; ++i) ids.push_back((i * 7 + i * i * 3 + 11 * sequence) % kVocab);
  return ids;
}

struct Served {
  explicit Served(const std::string& spec)
      : cache(build_cache(parse_spec(spec), cache_shape(ragged_model().config(), kSequences, kMostTokens),
                          ledger)),
        model(ragged_model(), *cache) {}
  memory::Ledger ledger;
  std::unique_ptr<Cache> cache;
  RaggedModel model;
};

// By step, the tokens of each sequence: chunks beside tokens that decode, some pause, some come late.
constexpr int64_t kSteps[][kSequences] = {{37, 0, 1, 0, 5}, {1, 16, 1, 0, 12}, {1, 9, 30, 0, 1},
                                          {1, 1, 1, 50, 0}, {1, 1, 1, 1, 1},   {0, 1, 1, 1, 40}};

TEST(RaggedModel, PredictsInAnyCompanyAsAlone) {
  for (const char* spec : {"contiguous/f16", "paged(block=16)/q8_0", "paged(block=32)/kivi(bits=2)",
                           "paged/f16/ring(window=20,sinks=2)", "doubling/q4_0"}) {
    Served together(spec), alone(spec);
    SequenceId ids[kSequences], own[kSequences];
    std::vector<int> texts[kSequences];
    int64_t had[kSequences] = {};
    for (int s = 0; s < kSequences; ++s) {
      ids[s] = together.cache->add_sequence();
      own[s] = alone.cache->add_sequence();
      texts[s] = text_of(s);
    }
    for (const auto& step : kSteps) {
      std::vector<RaggedModel::Part> parts;
      std::vector<float> want;
      for (int s = 0; s < kSequences; ++s) {
        if (step[s] == 0) continue;
        const auto part =
            std::span<const int>(texts[s]).subspan(static_cast<size_t>(had[s]), static_cast<size_t>(step[s]));
        const bool wanted = s != 2 || had[s] > 0;
        parts.push_back({ids[s], had[s], part, wanted});
        const RaggedModel::Part one{own[s], had[s], part, wanted};
        const std::vector<float> logits = alone.model.step({&one, 1}, kLeastRows);
        EXPECT_EQ(logits.size(), wanted ? size_t{kVocab} : 0);
        want.insert(want.end(), logits.begin(), logits.end());
        had[s] += step[s];
      }
      EXPECT_LT(test::largest_difference(together.model.step(parts, kLeastRows), want), kRounding) << spec;
    }
  }
}

TEST(RaggedModel, PaddingChangesNothing) {
  const std::vector<int> text = text_of(1);
  std::vector<float> logits[2];
  for (const int64_t padding : {0, 40}) {
    Served served("contiguous");
    const RaggedModel::Part part{served.cache->add_sequence(), 0, std::span(text).first(20), true};
    logits[padding > 0] = served.model.step({&part, 1}, padding);
    EXPECT_EQ(served.cache->tokens(part.sequence, 0), 20);
  }
  EXPECT_LT(test::largest_difference(logits[0], logits[1]), kRounding);
}

}  // namespace
}  // namespace kv
