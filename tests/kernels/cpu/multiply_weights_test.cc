// Products of stored weights against sums in FP64.
#include "kernels/cpu/weights/multiply.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/weights/product.h"
#include "kernels/math.h"
#include "tests/normal.h"

namespace kv::cpu {
namespace {

// Weights [rows, cols] as they are stored, at an odd address, and what they stand for.
struct Weights {
  std::vector<std::byte> bytes;
  std::vector<double> values;
  const std::byte* data() const { return bytes.data() + 1; }
};

Weights random_weights(WeightType type, int64_t count) {
  test::Normal normal(3);
  const size_t size = type == WeightType::kF32 ? 4 : 2;
  Weights w{std::vector<std::byte>(static_cast<size_t>(count) * size + 1), {}};
  for (int64_t i = 0; i < count; ++i) {
    const float value = normal();
    std::byte* to = w.bytes.data() + 1 + static_cast<size_t>(i) * size;
    if (type == WeightType::kF32) {
      std::memcpy(to, &value, size);
      w.values.push_back(static_cast<double>(value));
      continue;
    }
    const uint16_t bits = type == WeightType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    std::memcpy(to, &bits, size);
    w.values.push_back(static_cast<double>(type == WeightType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits)));
  }
  return w;
}

std::vector<float> random_vectors(int64_t count) { return test::gaussian(count, 4); }

constexpr WeightType kTypes[] = {WeightType::kF32, WeightType::kF16, WeightType::kBf16};

class MultiplyWeights : public testing::Test {
 protected:
  ~MultiplyWeights() override { force_isa("auto"); }
};

TEST_F(MultiplyWeights, EqualsSumsInFP64AtEverySize) {
  for (const std::string& isa : available_isas()) {
    force_isa(isa);
    for (const WeightType type : kTypes) {
      for (const int64_t cols : {1, 7, 16, 65, 300}) {
        for (const int64_t rows : {1, 3, 4, 9}) {
          for (const int64_t n : {1, 2, 3, 4, 7, 9}) {
            const Weights w = random_weights(type, rows * cols);
            const std::vector<float> x = random_vectors(n * cols);
            const int64_t stride = rows + 2;
            std::vector<float> y(static_cast<size_t>(n * stride), 77.0f);
            multiply_weights(w.data(), type, rows, cols, x.data(), n, y.data(), stride);
            for (int64_t t = 0; t < n; ++t) {
              for (int64_t r = 0; r < stride; ++r) {
                const auto got = static_cast<double>(y[static_cast<size_t>(t * stride + r)]);
                if (r >= rows) {
                  ASSERT_EQ(got, 77.0) << "written beyond the rows";
                  continue;
                }
                double sum = 0.0, magnitude = 0.0;
                for (int64_t c = 0; c < cols; ++c) {
                  const double product = w.values[static_cast<size_t>(r * cols + c)] *
                                         static_cast<double>(x[static_cast<size_t>(t * cols + c)]);
                  sum += product;
                  magnitude += std::abs(product);
                }
                // A chain of at most `cols` roundings of 2^-24 each.
                ASSERT_NEAR(got, sum, magnitude * static_cast<double>(cols + 1) * 0x1p-24)
                    << isa << ", " << rows << " x " << cols << ", vector " << t << " of " << n << ", row "
                    << r;
              }
            }
          }
        }
      }
    }
  }
}

// Batches and blocks may then be cut anywhere.
TEST_F(MultiplyWeights, GivesTheSameBitsWhateverIsBesideARowAndAVector) {
  constexpr int64_t kRows = 11, kCols = 211, kVectors = 9;
  const std::vector<float> x = random_vectors(kVectors * kCols);
  for (const std::string& isa : available_isas()) {
    force_isa(isa);
    for (const WeightType type : kTypes) {
      const Weights w = random_weights(type, kRows * kCols);
      std::vector<float> all(kRows * kVectors);
      multiply_weights(w.data(), type, kRows, kCols, x.data(), kVectors, all.data(), kRows);
      const int64_t row_bytes = kCols * (type == WeightType::kF32 ? 4 : 2);
      for (int64_t t = 0; t < kVectors; ++t) {
        for (int64_t r = 0; r < kRows; ++r) {
          float alone = 0.0f;
          multiply_weights(w.data() + r * row_bytes, type, 1, kCols, x.data() + t * kCols, 1, &alone, 1);
          ASSERT_EQ(alone, all[static_cast<size_t>(t * kRows + r)])
              << isa << ", row " << r << ", vector " << t;
        }
      }
    }
  }
}

// A chain of multiply-adds in the order of columns, to the bit; rounded twice a link where there is no such instruction.
TEST_F(MultiplyWeights, ByPackedVectorsAreChainsWhateverIsBeside) {
  for (const std::string& isa : available_isas()) {
    force_isa(isa);
    const bool fused = isa != "scalar" && isa != "sse4";
    for (const int64_t cols : {1, 7, 64, 301}) {
      for (const int64_t rows : {1, 5, 12, 31}) {
        for (const int64_t n : {1, 3, 8, 9, 33, 70}) {
          const std::vector<float> w = test::gaussian(rows * cols, 3), x = random_vectors(n * cols);
          const int64_t stride = rows + 2;
          std::vector<float> packed(static_cast<size_t>(packed_size(n, cols))),
              y(static_cast<size_t>(n * stride), 77.0f);
          pack_vectors(x.data(), n, cols, packed.data());
          multiply_packed(w.data(), rows, cols, packed.data(), n, y.data(), stride);
          for (int64_t at = 0; at < n * stride; ++at) {
            const int64_t t = at / stride, r = at % stride;
            float sum = r < rows ? 0.0f : 77.0f;
            for (int64_t c = 0; c < (r < rows ? cols : 0); ++c) {
              const float a = w[static_cast<size_t>(r * cols + c)], b = x[static_cast<size_t>(t * cols + c)];
              sum = fused ? std::fma(a, b, sum) : a * b + sum;
            }
            ASSERT_EQ(y[static_cast<size_t>(at)], sum)
                << isa << ", " << rows << " x " << cols << ", vector " << t << " of " << n << ", row " << r;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kv::cpu
