// Rows of levels as the vector units decode them are, bit for bit, what the formats decode: every instruction set.
#include <gtest/gtest.h>

#include "tests/kernels/cpu/every_isa.h"
#include "tests/kernels/format/unit.h"
#include "tests/normal.h"

namespace kv {
namespace {

using namespace test;

struct DecodeLevels : EveryIsa {
  void expect_the_scalar_numbers(const Encoding& e, int d, const Named& rows) {
    SCOPED_TRACE(encoding_name(e) + " head_dim " + std::to_string(d) + " " + rows.name);
    cpu::force_isa("scalar");
    const Unit unit(e, d, rows.values);
    const std::vector<float> want = unit.decoded();
    cpu::force_isa(GetParam());
    const std::vector<float> got = unit.decoded();
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::isnan(want[i]) && std::isnan(got[i])) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i])) << i;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(EveryIsa, DecodeLevels, every_isa(), isa_name);

TEST_P(DecodeLevels, NumbersAreTheScalarOnes) {
  Normal normal(3);
  for (const Encoding& e : levels()) {
    for (const int d : {32, 64, 96, 128, 192, 256, 576}) {
      if (!unsupported_reason(e, d).empty()) continue;
      std::vector<Named> all = adversarial(static_cast<size_t>(d));
      for (int i = 0; i < 20; ++i) {
        Named row{"random", std::vector<float>(static_cast<size_t>(d))};
        for (float& x : row.values) x = std::ldexp(normal(), i - 10);
        all.push_back(row);
      }
      all.push_back(all.back());
      all.back().values[static_cast<size_t>(d / 2)] = NAN;
      for (const Named& row : all) expect_the_scalar_numbers(e, d, row);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace kv
