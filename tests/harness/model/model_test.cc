// The forward pass against a naive FP64 one, and what the loader refuses.
#include "harness/model/model.h"

#include <algorithm>
#include <numeric>

#include "tests/harness/model/model_support.h"

namespace kv::model_test {
namespace {

using test::contains;
using test::largest_difference;
using test::refusal;
using test::run_in_chunks;
using test::TempFile;
using test::TinyModel;

using Row = std::vector<double>;

// The Llama forward pass as loops over doubles, one token after the other. It knows the file only as
// TinyModel's values and makes its own rotation angles.
class NaiveModel {
 public:
  explicit NaiveModel(const TinyModel& model) : m_(model), values_(model.values()) {
    for (const int size :
         {m_.vocab_size() * m_.dim, m_.layers * m_.dim, m_.layers * m_.dim * m_.dim,
          m_.layers * m_.kv_dim() * m_.dim, m_.layers * m_.kv_dim() * m_.dim, m_.layers * m_.dim * m_.dim,
          m_.layers * m_.dim, m_.layers * m_.hidden * m_.dim, m_.layers * m_.hidden * m_.dim,
          m_.layers * m_.hidden * m_.dim, m_.dim, m_.seq_len * m_.head_dim()}) {
      starts_.push_back(starts_.back() + size);
    }
    k_.resize(static_cast<size_t>(m_.layers));
    v_.resize(k_.size());
  }

  // Logits [vocab] of the next position.
  Row next(int token) {
    Row x = part(0, token, m_.dim);
    for (int l = 0; l < m_.layers; ++l) {
      add(x, product(5, l, m_.dim, attend(l, norm(x, part(1, l, m_.dim)))));
      const Row y = norm(x, part(6, l, m_.dim));
      Row gate = product(7, l, m_.hidden, y);
      const Row up = product(9, l, m_.hidden, y);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      add(x, product(8, l, m_.dim, gate));
    }
    ++position_;
    return product(m_.vocab < 0 ? 12 : 0, 0, m_.vocab_size(), norm(x, part(10, 0, m_.dim)));
  }

 private:
  // The index-th run of n values of a tensor.
  Row part(size_t tensor, int index, int n) const {
    const auto from = values_.begin() + starts_[tensor] + index * n;
    return Row(from, from + n);
  }

  // One layer's matrix [rows, x] times x.
  Row product(size_t tensor, int layer, int rows, const Row& x) const {
    Row y;
    for (int r = 0; r < rows; ++r) {
      const Row weights = part(tensor, layer * rows + r, static_cast<int>(x.size()));
      y.push_back(std::inner_product(x.begin(), x.end(), weights.begin(), 0.0));
    }
    return y;
  }

  static void add(Row& x, const Row& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  static Row norm(Row x, const Row& weight) {
    const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= scale * weight[i];
    return x;
  }

  Row rotated(Row x) const {
    for (size_t i = 0; i < x.size(); i += 2) {
      const double channel = static_cast<double>(i % static_cast<size_t>(m_.head_dim()));
      const double angle = position_ * std::pow(10000.0, -channel / m_.head_dim());
      const double a = x[i], b = x[i + 1];
      x[i] = a * std::cos(angle) - b * std::sin(angle);
      x[i + 1] = a * std::sin(angle) + b * std::cos(angle);
    }
    return x;
  }

  Row attend(int l, const Row& x) {
    const Row q = rotated(product(2, l, m_.dim, x));
    auto &keys = k_[static_cast<size_t>(l)], &values = v_[static_cast<size_t>(l)];
    keys.push_back(rotated(product(3, l, m_.kv_dim(), x)));
    values.push_back(product(4, l, m_.kv_dim(), x));
    Row out(q.size(), 0.0);
    const int size = m_.head_dim();
    for (int h = 0; h < m_.q_heads; ++h) {
      const int from_q = h * size, from_kv = h / (m_.q_heads / m_.kv_heads) * size;
      Row weights;
      for (const Row& key : keys) {
        const double dot =
            std::inner_product(key.begin() + from_kv, key.begin() + from_kv + size, q.begin() + from_q, 0.0);
        weights.push_back(std::exp(dot / std::sqrt(size)));
      }
      const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (size_t t = 0; t < values.size(); ++t) {
        for (int i = 0; i < size; ++i) {
          out[static_cast<size_t>(from_q + i)] +=
              weights[t] / sum * values[t][static_cast<size_t>(from_kv + i)];
        }
      }
    }
    return out;
  }

  TinyModel m_;
  std::vector<float> values_;
  std::vector<std::ptrdiff_t> starts_ = {0};
  std::vector<std::vector<Row>> k_, v_;  // [layers][tokens]
  int position_ = 0;
};

std::vector<int> some_tokens(int n, int vocab) {
  std::mt19937 bits(11);
  std::vector<int> ids;
  for (int i = 0; i < n; ++i) ids.push_back(static_cast<int>(bits() % static_cast<unsigned>(vocab)));
  return ids;
}

class TinyForward : public testing::TestWithParam<TinyModel> {};

TEST_P(TinyForward, EqualsNaiveFp64InChunksOfAnySize) {
  const TinyModel tiny = GetParam();
  const TempFile file(tiny.bytes());
  const model::Model model(file.path());
  const std::vector<int> ids = some_tokens(tiny.seq_len, tiny.vocab_size());
  NaiveModel naive(tiny);
  std::vector<double> want;
  for (const int id : ids) {
    const Row logits = naive.next(id);
    want.insert(want.end(), logits.begin(), logits.end());
  }
  for (const size_t chunk : {size_t{1}, size_t{3}, ids.size()}) {
    const double error = largest_difference(run_in_chunks(model, ids, chunk), want);
    EXPECT_LT(error, 1e-5) << "chunk " << chunk;
    EXPECT_GT(error, 1e-9) << "f32 cannot be this exact; chunk " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, TinyForward,
                         testing::Values(TinyModel{}, TinyModel{.kv_heads = 4}, TinyModel{.kv_heads = 1},
                                         TinyModel{.vocab = -11}, TinyModel{.q_heads = 1, .kv_heads = 1},
                                         TinyModel{.layers = 1, .q_heads = 8, .kv_heads = 4, .vocab = 1},
                                         TinyModel{.layers = 3, .vocab = -40, .seq_len = 150}),
                         [](const auto& tested) {
                           const TinyModel& m = tested.param;
                           return std::to_string(m.layers) + "layers_" + std::to_string(m.q_heads) + "q_" +
                                  std::to_string(m.kv_heads) + "kv_" + (m.vocab < 0 ? "untied_" : "tied_") +
                                  std::to_string(m.seq_len) + "tokens";
                         });

TEST(TinyModelFile, ConfigIsTheHeaders) {
  const TempFile file(TinyModel{.vocab = -11}.bytes());
  const model::ModelConfig c = model::Model(file.path()).config();
  EXPECT_EQ(c.dim, 16);
  EXPECT_EQ(c.hidden_dim, 20);
  EXPECT_EQ(c.layers, 2);
  EXPECT_EQ(c.q_heads, 4);
  EXPECT_EQ(c.kv_heads, 2);
  EXPECT_EQ(c.vocab_size, 11);
  EXPECT_EQ(c.max_tokens, 9);
  EXPECT_EQ(c.head_dim(), 4);
}

TEST(TinyModelFile, StepsOutsideTheTablesAreRefusedBeforeAttentionRuns) {
  const TempFile file(TinyModel{}.bytes());
  const model::Model model(file.path());
  const model::Model::Attention never = [](auto&&...) { FAIL() << "attention ran"; };
  const auto refused = [&](std::vector<int> ids, int64_t first) {
    return refusal([&] { model.forward(ids, first, never); });
  };
  EXPECT_TRUE(contains(refused({1}, 9), "positions 9 to 9 asked for, its rotary table has 0 to 8"));
  EXPECT_TRUE(contains(refused({1, 1}, 8), "positions 8 to 9"));
  EXPECT_TRUE(contains(refused({1}, -1), "positions -1 to -1"));
  EXPECT_TRUE(contains(refused({1, 11}, 0), "token id 11 is not in its vocabulary, 0 to 10"));
  EXPECT_TRUE(contains(refused({-1}, 0), "token id -1"));
  EXPECT_TRUE(model.forward({}, 9, never).empty());
}

std::string refusal_of(const std::string& bytes) {
  const TempFile file(bytes);
  const std::string message = refusal([&] { model::Model(file.path()); });
  EXPECT_TRUE(contains(message, file.path())) << message;
  return message;
}

TEST(TinyModelFile, SizesThatDoNotFitTheHeaderAreRefusedWithBothNumbers) {
  const std::string whole = TinyModel{}.bytes();
  const std::string expected = "its header makes " + std::to_string(whole.size()) + " bytes, found ";
  EXPECT_TRUE(contains(refusal_of(whole + "x"), expected + std::to_string(whole.size() + 1)));
  EXPECT_TRUE(
      contains(refusal_of(whole.substr(0, whole.size() - 1)), expected + std::to_string(whole.size() - 1)));
  EXPECT_TRUE(contains(refusal_of(whole.substr(0, 28)), expected + "28"));
  EXPECT_TRUE(contains(refusal_of(whole.substr(0, 27)), "found 27 bytes, expected a header of 28"));
  EXPECT_TRUE(contains(refusal_of(""), "found 0 bytes, expected a header of 28"));
  // The same bytes under the other sign of vocab_size lack the classifier.
  EXPECT_TRUE(
      contains(refusal_of(TinyModel{.vocab = -11}.bytes().substr(0, whole.size())), "its header makes"));
}

// The valid file with one header field set to something else.
std::string with_field(size_t field, int32_t value) {
  std::string bytes = TinyModel{}.bytes();
  std::memcpy(bytes.data() + 4 * field, &value, sizeof(value));
  return bytes;
}

TEST(TinyModelFile, AbsurdHeadersAreRefused) {
  const char* names[] = {"dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len"};
  for (size_t field = 0; field < 7; ++field) {
    for (const int32_t value : {0, INT32_MIN, INT32_MAX}) {
      const std::string expected =
          std::string("header field ") + names[field] + " is " + std::to_string(value);
      EXPECT_TRUE(contains(refusal_of(with_field(field, value)), expected)) << expected;
    }
    if (field == 5) continue;  // a negative vocab_size has a meaning
    EXPECT_TRUE(contains(refusal_of(with_field(field, -1)), "is -1, expected 1 to"));
  }
  EXPECT_TRUE(contains(refusal_of(with_field(3, 3)), "dim 16 is not a multiple of n_heads 3"));
  EXPECT_TRUE(contains(refusal_of(with_field(4, 3)), "n_heads 4 is not a multiple of n_kv_heads 3"));
  EXPECT_TRUE(
      contains(refusal_of(with_field(3, 16)), "head dimension 1 is not a multiple of a rotary pair's 2"));
}

TEST(TinyModelFile, TheLargestHeaderDoesNotOverflowTheSize) {
  const int32_t side = 1 << 20;
  const std::array<int32_t, 7> header = {side, side, 1 << 12, 1, 1, -side, side};
  std::string bytes;
  test::append_raw(bytes, header.data(), header.size());
  EXPECT_TRUE(contains(refusal_of(bytes), "makes 126114018069839900 bytes"));
}

TEST(TinyModelFile, WhatIsNoFileIsRefused) {
  EXPECT_TRUE(contains(refusal([] { model::Model("/no/such/file"); }), "/no/such/file: No such file"));
  EXPECT_TRUE(contains(refusal([] { model::Model{KVLAB_SOURCE_DIR "/tests"}; }),
                       "tests/config.json; a Hugging Face config.json is needed"));
}

}  // namespace
}  // namespace kv::model_test
