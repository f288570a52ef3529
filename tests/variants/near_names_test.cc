// Suggestions for unknown names.
#include "variants/cache/near_names.h"

#include <gtest/gtest.h>

namespace kv {
namespace {

using Names = std::vector<std::string_view>;

const Names kModels{"llama-3-8b",      "llama-3.1-8b",     "mistral-7b",
                    "mistral-7b-v0.3", "mistral-nemo-12b", "phi-2"};

TEST(NearNames, CaseAndAFewLettersDoNotMatter) {
  EXPECT_EQ(near_names("Mistral-7B", kModels), (Names{"mistral-7b", "mistral-7b-v0.3"}));
  EXPECT_EQ(near_names("lama-3-8b", kModels), (Names{"llama-3-8b"}));
  EXPECT_EQ(near_names("contigous", Names{"concat", "contiguous", "paged"}), (Names{"contiguous"}));
}

TEST(NearNames, APartOfANameOrANameWithMoreIsNear) {
  EXPECT_EQ(near_names("nemo", kModels), (Names{"mistral-nemo-12b"}));
  EXPECT_EQ(near_names("Llama-3.1-8B-Instruct", kModels), (Names{"llama-3.1-8b"}));
  EXPECT_EQ(near_names("7b", kModels), Names{});  // too short a part
}

TEST(NearNames, AtMostThreeTheNearestFirst) {
  EXPECT_EQ(near_names("update", Names{"update-of-all", "update-x", "update-xy", "update-xyz"}),
            (Names{"update-x", "update-xy", "update-xyz"}));
}

TEST(NearNames, NothingIsSuggestedForWhatIsFar) {
  EXPECT_EQ(near_names("gpt-9", kModels), Names{});
  EXPECT_EQ(near_names("", kModels), Names{});
  EXPECT_EQ(near_names(std::string(100'000, 'x'), kModels), Names{});
  EXPECT_EQ(did_you_mean("gpt-9", kModels), "");
}

TEST(NearNames, TheSentenceNamesAll) {
  EXPECT_EQ(did_you_mean("phi2", kModels), "; did you mean 'phi-2'?");
  EXPECT_EQ(did_you_mean("mistral-7", kModels), "; did you mean 'mistral-7b' or 'mistral-7b-v0.3'?");
  EXPECT_EQ(did_you_mean("mistral", kModels),
            "; did you mean 'mistral-7b', 'mistral-7b-v0.3' or 'mistral-nemo-12b'?");
}

TEST(NearNames, TheNearestComeFirstThenAFewOfTheKnown) {
  EXPECT_EQ(known_names("phi2", kModels),
            "; did you mean 'phi-2'? Known: llama-3-8b, llama-3.1-8b, mistral-7b, mistral-7b-v0.3, "
            "mistral-nemo-12b, phi-2");
  EXPECT_EQ(known_names("a2", Names{"a1", "b1"}), "; did you mean 'a1'? Known: a1, b1");
  EXPECT_EQ(known_names("x", Names{"a", "b1"}), "; known: a, b1");
  EXPECT_EQ(known_names("gpt-9", Names(9, "name")), "; known: name, name, name, name, name, … (9)");
  EXPECT_EQ(known_names("gpt-9", Names{}), "; known: none");
}

}  // namespace
}  // namespace kv
