// vq by its definition: bytes read one by one, words compared in FP64.
#include "kernels/format/vq.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/encode.h"
#include "tests/normal.h"

namespace kv {
namespace {

constexpr int kVqHeadDims[] = {8, 24, 64, 576};

// Codebooks [2, head_dim / 8, 256, 8], the second of smaller words, the last word of each NaN.
std::vector<float> random_vq_books(int head_dim) {
  std::vector<float> words = test::gaussian(2 * head_dim * 256, 5);
  for (size_t i = 0; i < words.size(); ++i) {
    if (i >= words.size() / 2) words[i] *= 0.5f;
    if (i / 8 % 256 == 255) words[i] = NAN;
  }
  return words;
}

// The words made for N(0,1), as the format's page has them.
float shared_vq_word(int book, int word, int i) {
  const double magnitude = book == 0 ? std::sqrt(2 / M_PI) : 0.4826;
  return word == 255 ? NAN : static_cast<float>((word >> i) % 2 == 1 ? -magnitude : magnitude);
}

class Vq : public testing::TestWithParam<bool> {
 protected:
  float word(int head_dim, int book, int group, int index, int i) const {
    if (!GetParam()) return shared_vq_word(book, index, i);
    return books_[static_cast<size_t>(((book * head_dim / 8 + group) * 256 + index) * 8 + i)];
  }
  Encoding encoding(int bits) const {
    return {.format = Format::kVq, .bits = static_cast<uint8_t>(bits), .second = GetParam()};
  }
  std::vector<std::byte> encoded(int bits, int head_dim, const std::vector<float>& row) {
    std::vector<std::byte> data(static_cast<size_t>(bits * head_dim / 8));
    encode_unit(encoding(bits), head_dim, row.data(), data.data(), tables());
    return data;
  }
  std::vector<float> decoded(int bits, int head_dim, const std::vector<std::byte>& data) {
    std::vector<float> row(static_cast<size_t>(head_dim));
    decode_row(encoding(bits), head_dim, data.data(), tables(), 0, row.data());
    return row;
  }
  std::byte* tables() { return books_.empty() ? nullptr : reinterpret_cast<std::byte*>(books_.data()); }

  std::vector<float> books_;
};
INSTANTIATE_TEST_SUITE_P(Learned, Vq, testing::Bool());

TEST_P(Vq, EveryIndexIsOfTheNearestWordAndARowIsTheSumOfItsWords) {
  for (const int d : kVqHeadDims) {
    if (GetParam()) books_ = random_vq_books(d);
    for (const int bits : {1, 2}) {
      const std::vector<float> row = test::gaussian(d, 9, 1.5f);
      const std::vector<std::byte> data = encoded(bits, d, row);
      const std::vector<float> back = decoded(bits, d, data);
      for (int group = 0; group < d / 8; ++group) {
        double left[8], sum[8] = {};
        for (int i = 0; i < 8; ++i) left[i] = double{row[static_cast<size_t>(8 * group + i)]};
        for (int book = 0; book < bits; ++book) {
          const int chosen = static_cast<int>(data[static_cast<size_t>(book * d / 8 + group)]);
          double least = INFINITY, own = NAN;
          for (int index = 0; index < 255; ++index) {
            double distance = 0.0;
            for (int i = 0; i < 8; ++i)
              distance += std::pow(left[i] - double{word(d, book, group, index, i)}, 2);
            least = std::min(least, distance);
            if (index == chosen) own = distance;
          }
          ASSERT_LE(own, least * (1 + 1e-5)) << "head_dim " << d << " book " << book << " group " << group;
          for (int i = 0; i < 8; ++i) {
            left[i] -= double{word(d, book, group, chosen, i)};
            sum[i] += double{word(d, book, group, chosen, i)};
          }
        }
        for (int i = 0; i < 8; ++i) ASSERT_NEAR(back[static_cast<size_t>(8 * group + i)], sum[i], 1e-6);
      }
    }
  }
}

TEST_P(Vq, ValuesThatAreNotFiniteMakeTheirEightNan) {
  if (GetParam()) books_ = random_vq_books(24);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> row = test::gaussian(24, 3);
    row[11] = bad;
    const std::vector<float> back = decoded(2, 24, encoded(2, 24, row));
    for (size_t i = 0; i < back.size(); ++i) EXPECT_EQ(std::isnan(back[i]), i / 8 == 1) << bad << " " << i;
  }
}

TEST_P(Vq, RowsFarOutsideStayFinite) {
  if (GetParam()) books_ = random_vq_books(8);
  for (const float far : {0.0f, 1e-40f, 1e10f, 3e38f, -3e38f}) {
    for (const float x : decoded(2, 8, encoded(2, 8, std::vector<float>(8, far))))
      EXPECT_TRUE(std::isfinite(x));
  }
}

TEST_P(Vq, RowsOfASpanShareTheirCodebooks) {
  if (GetParam()) books_ = random_vq_books(64);
  std::vector<std::byte> data;
  std::vector<float> want;
  for (uint64_t row = 0; row < 5; ++row) {
    const auto bytes = encoded(1, 64, test::gaussian(64, 20 + row));
    const auto back = decoded(1, 64, bytes);
    data.insert(data.end(), bytes.begin(), bytes.end());
    want.insert(want.end(), back.begin(), back.end());
  }
  std::vector<float> got(want.size());
  decode_rows({.data = data.data(), .meta = tables(), .stride = 8, .meta_stride = 0, .encoding = encoding(1)},
              64, 0, 5, got.data());
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace kv
