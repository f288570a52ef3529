// Real models against their published numbers: the text that they write, and their losses.
#include "harness/model/model.h"

#include <algorithm>
#include <numeric>

#include "tests/harness/math/numpy_random.h"
#include "tests/harness/model/model_support.h"

namespace kv {
namespace {

using test::data_path;

// Sum of -ln p(id[i + 1] | id[0 … i]) over the ids from `first_target` on, and how many they are.
struct Loss {
  double sum = 0;
  int64_t count = 0;
  double mean() const { return sum / static_cast<double>(count); }
};

void add_loss(const model::Model& model, std::span<const int> ids, Loss& loss, size_t first_target = 1) {
  const std::vector<float> logits =
      model.forward(ids.first(ids.size() - 1), 0, model::full_attention(model.config()));
  const auto vocab = static_cast<std::ptrdiff_t>(model.config().vocab_size);
  for (size_t target = first_target; target < ids.size(); ++target) {
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(target - 1) * vocab;
    const double largest = *std::max_element(row, row + vocab);
    double sum = 0;
    for (auto p = row; p != row + vocab; ++p) sum += std::exp(*p - largest);
    loss.sum += largest + std::log(sum) - row[ids[target]];
    ++loss.count;
  }
}

// Disjoint windows of max_tokens inputs, each predicted from its own beginning; a last part is left out.
Loss window_loss(const model::Model& model, std::span<const int> ids, size_t most) {
  Loss loss;
  const size_t size = static_cast<size_t>(model.config().max_tokens);
  for (size_t w = 0; w < most && (w + 1) * size < ids.size(); ++w) {
    add_loss(model, ids.subspan(w * size, size + 1), loss);
  }
  return loss;
}

// The stories between <|endoftext|> lines, without the white space around them.
std::vector<std::string> stories(const std::string& name, size_t most) {
  const std::string text = test::read_all(data_path(name)), mark = "<|endoftext|>", space = " \n\r\t";
  std::vector<std::string> out;
  for (size_t from = 0; from < text.size() && out.size() < most;) {
    const size_t to = std::min(text.find(mark, from), text.size());
    const std::string story = text.substr(from, to - from);
    if (const size_t first = story.find_first_not_of(space); first != std::string::npos) {
      out.push_back(story.substr(first, story.find_last_not_of(space) - first + 1));
    }
    from = to + mark.size();
  }
  return out;
}

std::vector<int> packed(const model::Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  std::vector<int> ids;
  for (const std::string& text : texts) {
    const std::vector<int> more = tokenizer.encode(text);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

// Characters [first, last) of UTF-8 text.
std::string characters(const std::string& text, int64_t first, int64_t last) {
  std::string out;
  int64_t at = -1;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) ++at;
    if (at >= first && at < last) out += c;
  }
  return out;
}

std::vector<int> stored_ids(const std::string& name, size_t first, size_t n) {
  const std::string bytes = test::read_all(data_path(name));
  std::vector<uint16_t> ids(n);
  std::memcpy(ids.data(), bytes.data() + first * sizeof(uint16_t), n * sizeof(uint16_t));
  return {ids.begin(), ids.end()};
}

// A model with its tokenizer.
struct Real {
  model::Model model;
  model::Tokenizer tokenizer;
  Real(const std::string& weights, const std::string& pieces)
      : model(data_path("models/" + weights)),
        tokenizer(data_path("models/" + pieces), model.config().vocab_size) {}
};
Real stories260k() { return {"stories260K.bin", "tok512.bin"}; }
Real babyllama105() { return {"babyllama105.bin", "tok105.bin"}; }

// Half of the last printed digit, and a little for f32.
constexpr double kDigits = 0.00006;

class RealModel : public testing::Test {
 protected:
  void SetUp() override {
    if (test::data_is_absent()) GTEST_SKIP() << test::why_skipped();
  }
};

// Rows that take seconds with the optimizer and minutes without.
class RealModelSlow : public RealModel {
 protected:
  void SetUp() override {
#ifndef NDEBUG
    GTEST_SKIP() << "too slow in a debug build";
#endif
    RealModel::SetUp();
  }
};

TEST_F(RealModel, Stories260kTellsTheReferenceStory) {
  const Real real = stories260k();
  const model::Model::Attention attention = model::full_attention(real.model.config());
  std::vector<int> ids = {model::Tokenizer::kBos};
  for (int position = 0; position < 200; ++position) {
    const std::vector<float> logits = real.model.forward({&ids.back(), 1}, position, attention);
    ids.push_back(static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  // llama2.c, test_all.py: the text of 200 steps at temperature 0.
  EXPECT_EQ(
      real.tokenizer.decode(ids),
      "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, "
      "she saw a big, red ball. She wanted to play with it, but it was too high.\nLily's mom said, \"Lily, "
      "let's go to the park.\" Lily was sad and didn't know what to do. She said, \"I want to play with your "
      "ball, but I can't find it.\"\nLily was sad and didn't know what to do. She said, \"I'm sorry, Lily. I "
      "didn't know what to do.\"\nLily didn't want to help her mom, so she");
}

TEST_F(RealModel, Stories260kOnTheValidationStories) {
  const Real real = stories260k();
  Loss loss;
  for (const std::string& story : stories("text/tinystories_valid_sample.txt", 5)) {
    add_loss(real.model, real.tokenizer.encode(story), loss);
  }
  EXPECT_EQ(loss.count, 1804);
  EXPECT_NEAR(loss.mean(), 1.2664, kDigits);
  EXPECT_NEAR(std::exp(loss.mean()), 3.548, 0.0006);
}

TEST_F(RealModelSlow, Stories260kOnTrainingStories) {
  const Real real = stories260k();
  Loss loss;
  for (const std::string& story : stories("text/tinystories_1000.txt", 60)) {
    const std::vector<int> ids = real.tokenizer.encode(story);
    const size_t inputs_and_last_target = std::min<size_t>(ids.size(), 512 + 1);
    add_loss(real.model, std::span(ids).first(inputs_and_last_target), loss);
  }
  EXPECT_EQ(loss.count, 21266);
  EXPECT_NEAR(loss.mean(), 1.4221, kDigits);
}

TEST_F(RealModelSlow, Stories260kOnOtherTexts) {
  const Real real = stories260k();
  const std::string grimm =
      characters(test::read_all(data_path("text/grimms_fairy_tales.txt")), 20000, 30000);
  EXPECT_NEAR(window_loss(real.model, real.tokenizer.encode(grimm), 8).mean(), 3.7955, kDigits);
  const std::string plays = test::read_all(data_path("text/tinyshakespeare.txt"));
  const std::vector<int> ids = real.tokenizer.encode(plays.substr(plays.size() - 12000));
  EXPECT_NEAR(window_loss(real.model, ids, 8).mean(), 5.2543, kDigits);
}

TEST_F(RealModelSlow, Babyllama105OnTheValidationStories) {
  const Real real = babyllama105();
  const std::vector<int> ids = packed(real.tokenizer, stories("text/tinystories_valid_sample.txt", 5));
  const Loss loss = window_loss(real.model, ids, ids.size());
  EXPECT_EQ(loss.count, 3584);
  EXPECT_NEAR(loss.mean(), 0.7632, kDigits);
}

TEST_F(RealModelSlow, Babyllama105OnGrimm) {
  const Real real = babyllama105();
  const std::string grimm =
      characters(test::read_all(data_path("text/grimms_fairy_tales.txt")), 20000, 30000);
  const Loss loss = window_loss(real.model, real.tokenizer.encode(grimm), 30);
  EXPECT_EQ(loss.count, 7680);
  EXPECT_NEAR(loss.mean(), 2.0583, kDigits);
}

TEST_F(RealModelSlow, RecallModelOnBooks) {
  const model::Model model(data_path("models/kvlab-recall-1m.bin"));
  const auto perplexity = [&](const std::string& name, size_t first) {
    return std::exp(window_loss(model, stored_ids(name, first, 8 * 1024 + 1), 8).mean());
  };
  EXPECT_NEAR(perplexity("text/grimms_fairy_tales.tok512.u16", 5000), 10.401, 0.0006);
  EXPECT_NEAR(perplexity("text/alice_in_wonderland.tok512.u16", 0), 9.150, 0.0006);
}

// Tokens seen `gap` tokens ago are predicted again: the README's recall protocol.
Loss recall_loss(const model::Model& model, size_t n, size_t gap) {
  Loss loss;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    std::vector<int> ids = test::NumpyRandom(seed).integers(3, 512, 1025);
    std::copy_n(ids.begin() + 40, n, ids.begin() + static_cast<std::ptrdiff_t>(40 + gap));
    add_loss(model, std::span(ids).first(40 + gap + n), loss, 40 + gap + 9);
  }
  return loss;
}

TEST_F(RealModelSlow, RecallModelCopiesFromFarBack) {
  const model::Model model(data_path("models/kvlab-recall-1m.bin"));
  EXPECT_NEAR(recall_loss(model, 64, 160).mean(), 1.732, 0.0006);
  EXPECT_NEAR(recall_loss(model, 64, 320).mean(), 0.167, 0.0006);
  EXPECT_NEAR(recall_loss(model, 400, 500).mean(), 0.047, 0.0006);
}

TEST(NumpyRandom, EqualsNumpy) {
  EXPECT_EQ(test::NumpyRandom(0).integers(0, 10, 10), (std::vector<int>{8, 6, 5, 2, 3, 0, 0, 0, 1, 8}));
}

}  // namespace
}  // namespace kv
