// The vector encoders store, byte for byte, what the scalar ones do: every format, every instruction set.
#include <gtest/gtest.h>

#include <random>

#include "kernels/format/descriptor.h"
#include "tests/kernels/cpu/every_isa.h"
#include "tests/kernels/format/unit.h"
#include "tests/normal.h"

namespace kv {
namespace {

using namespace test;

struct Encode : EveryIsa {
  void expect_the_scalar_bytes(const Encoding& e, int d, const Named& rows) {
    SCOPED_TRACE(encoding_name(e) + " head_dim " + std::to_string(d) + " " + rows.name);
    cpu::force_isa("scalar");
    const Unit want(e, d, rows.values);
    cpu::force_isa(GetParam());
    Unit got(e, d);
    std::fill(got.data.begin(), got.data.end(), std::byte{0xff});
    encode_unit(e, d, rows.values.data(), got.data.data(), got.meta.data());
    ASSERT_EQ(got.data, want.data);
    ASSERT_EQ(got.meta, want.meta);
  }
};
INSTANTIATE_TEST_SUITE_P(EveryIsa, Encode, every_isa(), isa_name);

std::vector<Encoding> formats() {
  std::vector<Encoding> all = quantised();
  const std::vector<Encoding> samples = sample_encodings();
  all.insert(all.end(), samples.begin(), samples.end());
  return all;
}

// Rows that adversarial() leaves out: NaN and infinities, one at every place that vectors treat apart, and
// bit patterns of any kind.
std::vector<Named> beyond_finite(size_t n, std::mt19937& rng) {
  std::vector<Named> all;
  Normal normal(rng());
  for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
    for (const size_t at : {size_t{0}, n / 2 + 1, n - 1}) {
      Named row{std::to_string(bad) + " at " + std::to_string(at), std::vector<float>(n)};
      for (float& x : row.values) x = normal();
      row.values[at] = bad;
      all.push_back(row);
    }
  }
  Named nans{"NaN of any payload", std::vector<float>(n)}, any{"any bits", nans.values};
  Named finite{"any finite bits", nans.values};
  for (float& x : nans.values) x = std::bit_cast<float>(static_cast<uint32_t>(rng()) | 0x7f800001u);
  for (float& x : any.values) x = std::bit_cast<float>(static_cast<uint32_t>(rng()));
  for (float& x : finite.values) {
    do x = std::bit_cast<float>(static_cast<uint32_t>(rng()));
    while (!std::isfinite(x));
  }
  all.insert(all.end(), {nans, any, finite});
  return all;
}

TEST_P(Encode, StoresTheScalarBytesOfHardRows) {
  std::mt19937 rng(11);
  for (const Encoding& e : formats()) {
    for (const int d : {8, 24, 64, 80, 96, 128, 256}) {
      if (!unsupported_reason(e, d).empty()) continue;
      const auto n = static_cast<size_t>(e.group * d);
      for (const Named& rows : adversarial(n)) expect_the_scalar_bytes(e, d, rows);
      for (const Named& rows : beyond_finite(n, rng)) expect_the_scalar_bytes(e, d, rows);
      if (HasFailure()) return;
    }
  }
}

// Many rows of every magnitude: ties, the borders between codes, scales that round and scales that underflow.
TEST_P(Encode, StoresTheScalarBytesOfManyRows) {
  std::mt19937 rng(12);
  Normal normal(12);
  std::uniform_int_distribution<int> exponent(-60, 30);
  for (const Encoding& e : formats()) {
    const int d = 128;
    for (int repeat = 0; repeat < 1500 / e.group; ++repeat) {
      Named rows{"random", std::vector<float>(static_cast<size_t>(e.group * d))};
      const float scale = std::ldexp(1.0f, exponent(rng)), offset = normal();
      const bool whole = repeat % 3 == 0;  // whole numbers meet the middle between codes often
      for (float& x : rows.values) {
        x = normal() + offset;
        x = scale * (whole ? std::round(4.0f * x) : x);
      }
      expect_the_scalar_bytes(e, d, rows);
      if (HasFailure()) return;
    }
  }
}

// Units are encoded some at a time, and one that is refused must not change its neighbours.
TEST_P(Encode, StoresTheScalarBytesOfLists) {
  Normal normal(13);
  for (const Encoding& e : formats()) {
    for (const int d : {64, 96, 128, 256}) {
      const auto n = static_cast<size_t>(e.group * d);
      for (const size_t count : {1, 2, 3, 4, 5, 7, 9}) {
        std::vector<float> rows(count * n);
        for (float& x : rows) x = normal();
        if (count > 3) rows[2 * n + n / 3] = NAN;
        const auto encoded = [&](const std::string& isa) {
          cpu::force_isa(isa);
          std::vector<Unit> units(count, Unit(e, d));
          std::vector<UnitJob> jobs;
          for (size_t i = 0; i < count; ++i)
            jobs.push_back({rows.data() + i * n, units[i].data.data(), units[i].meta.data()});
          encode_units(e, d, jobs);
          return units;
        };
        const std::vector<Unit> want = encoded("scalar"), got = encoded(GetParam());
        for (size_t i = 0; i < count; ++i) {
          SCOPED_TRACE(encoding_name(e) + " head_dim " + std::to_string(d) + ", " + std::to_string(i) +
                       " of " + std::to_string(count));
          ASSERT_EQ(got[i].data, want[i].data);
          ASSERT_EQ(got[i].meta, want[i].meta);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kv
