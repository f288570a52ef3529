// Real models against their published numbers: the text that they write, and their losses.
#include "harness/model/model.h"

#include <algorithm>
#include <numeric>

#include "harness/model/token_ids.h"
#include "tests/harness/math/numpy_random.h"
#include "tests/harness/model/model_support.h"

namespace kv {
namespace {

using test::data_path;

constexpr int kBos = 1;

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

// The stories between <|endoftext|> lines, with these lines and without the text's own empty one before them.
std::string stories(const std::string& name, size_t most) {
  const std::string text = test::read_all(data_path(name)), mark = "<|endoftext|>";
  size_t end = 0;
  for (size_t i = 0; i < most && end < text.size(); ++i)
    end = std::min(text.find(mark, end), text.size()) + mark.size();
  const size_t begin = text.find_first_not_of('\n');
  return text.substr(begin, end - begin);
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

// A model with its tokenizer.
struct Real {
  std::string folder;
  model::Model model{folder};

  std::vector<int> encode(const std::string& text) const {
    const test::TempFile file(text);
    return model::read_tokens(file.path(), folder + "/tokenizer.json", model.config().vocab_size);
  }
};
Real stories260k() { return {test::converted("stories260K")}; }
Real babyllama105() { return {test::converted("babyllama105")}; }

// BOS and what follows it up to the next.
std::vector<std::span<const int>> documents(std::span<const int> ids) {
  std::vector<std::span<const int>> all;
  for (size_t from = 0; from < ids.size();) {
    const auto next = std::find(ids.begin() + static_cast<std::ptrdiff_t>(from) + 1, ids.end(), kBos);
    const size_t to = static_cast<size_t>(next - ids.begin());
    if (to > from + 1) all.push_back(ids.subspan(from, to - from));
    from = to;
  }
  return all;
}

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

TEST_F(RealModel, Stories260kOnTheValidationStories) {
  const Real real = stories260k();
  Loss loss;
  const std::vector<int> ids = real.encode(stories("text/tinystories_valid_sample.txt", 5));
  for (const std::span<const int> story : documents(ids)) add_loss(real.model, story, loss);
  EXPECT_EQ(loss.count, 1804);
  EXPECT_NEAR(loss.mean(), 1.2664, kDigits);
  EXPECT_NEAR(std::exp(loss.mean()), 3.548, 0.0006);
}

TEST_F(RealModelSlow, Stories260kOnTrainingStories) {
  const Real real = stories260k();
  Loss loss;
  const std::vector<int> ids = real.encode(stories("text/tinystories_1000.txt", 60));
  for (const std::span<const int> story : documents(ids))
    add_loss(real.model, story.first(std::min<size_t>(story.size(), 512 + 1)), loss);
  EXPECT_EQ(loss.count, 21266);
  EXPECT_NEAR(loss.mean(), 1.4221, kDigits);
}

TEST_F(RealModelSlow, Stories260kOnOtherTexts) {
  const Real real = stories260k();
  const std::string grimm =
      characters(test::read_all(data_path("text/grimms_fairy_tales.txt")), 20000, 30000);
  EXPECT_NEAR(window_loss(real.model, real.encode(grimm), 8).mean(), 3.7955, kDigits);
  const std::string plays = test::read_all(data_path("text/tinyshakespeare.txt"));
  const std::vector<int> ids = real.encode(plays.substr(plays.size() - 12000));
  EXPECT_NEAR(window_loss(real.model, ids, 8).mean(), 5.2543, kDigits);
}

TEST_F(RealModelSlow, Babyllama105OnTheValidationStories) {
  const Real real = babyllama105();
  const std::vector<int> ids = real.encode(stories("text/tinystories_valid_sample.txt", 5));
  const Loss loss = window_loss(real.model, ids, ids.size());
  EXPECT_EQ(loss.count, 3584);
  EXPECT_NEAR(loss.mean(), 0.7632, kDigits);
}

TEST_F(RealModelSlow, Babyllama105OnGrimm) {
  const Real real = babyllama105();
  const std::string grimm =
      characters(test::read_all(data_path("text/grimms_fairy_tales.txt")), 20000, 30000);
  const Loss loss = window_loss(real.model, real.encode(grimm), 30);
  EXPECT_EQ(loss.count, 7680);
  EXPECT_NEAR(loss.mean(), 2.0583, kDigits);
}

TEST(NumpyRandom, EqualsNumpy) {
  EXPECT_EQ(test::NumpyRandom(0).integers(0, 10, 10), (std::vector<int>{8, 6, 5, 2, 3, 0, 0, 0, 1, 8}));
}

}  // namespace
}  // namespace kv
