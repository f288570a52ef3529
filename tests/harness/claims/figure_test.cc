// Figures as they are printed, and the values that agree with them.
#include "harness/claims/figure.h"

#include <gtest/gtest.h>

#include "tests/message_of.h"

namespace kv {
namespace {

claims::Window window_of(const std::string& text, const std::string& tolerance = "as printed",
                         size_t unit = 0) {
  const claims::Figure figure = claims::parse_figure(text);
  return figure.window(claims::parse_tolerance(tolerance), figure.units.at(unit));
}

TEST(Figure, AgreesWithinHalfAUnitOfItsLastDigit) {
  EXPECT_DOUBLE_EQ(window_of("0.67 MB").low, 0.665e6);
  EXPECT_DOUBLE_EQ(window_of("0.67 MB").high, 0.675e6);
  EXPECT_DOUBLE_EQ(window_of("21.990 GB").high, 21.9905e9);
  EXPECT_DOUBLE_EQ(window_of("10,995.08 MB").low, 10995.075e6);
  EXPECT_DOUBLE_EQ(window_of("4×").low, 3.5);
  EXPECT_NEAR(window_of("4.2e14 FLOPs").low, 4.15e14, 1e3);
}

TEST(Figure, ReadsUnitsAsPrintedAndAsPowersOf1024) {
  EXPECT_DOUBLE_EQ(window_of("48 MB", "as printed", 1).low, 47.5 * 1048576);
  EXPECT_EQ(claims::parse_figure("48 MB").units.at(1).name, "MiB");
  EXPECT_DOUBLE_EQ(window_of("48 KB", "as printed", 1).low, 47.5 * 1024);
  EXPECT_DOUBLE_EQ(window_of("48 GB", "as printed", 1).low, 47.5 * 1024 * 1048576);
  EXPECT_DOUBLE_EQ(window_of("48 TB", "as printed", 1).low, 47.5 * 1048576 * 1048576);
  EXPECT_TRUE(window_of("1.28 GB", "as printed", 2).contains(1275 * 1048576.0));  // 1.275 thousand MiB
  const claims::Figure thousand = claims::parse_figure("4.8 GB");
  EXPECT_EQ(thousand.in_unit(4800.0 * 1048576, thousand.units.at(2)), "4800 MiB");
  EXPECT_EQ(claims::parse_figure("48 MiB").units.size(), 1u);
  EXPECT_EQ(claims::parse_figure("25 tok/s").units.size(), 1u);
}

TEST(Figure, TakesSignsAndRangesAtTheirWord) {
  EXPECT_DOUBLE_EQ(window_of("~200×").low, 180);
  EXPECT_DOUBLE_EQ(window_of("~4×").low, 3.5);  // half a unit, which is more than 10 %
  EXPECT_DOUBLE_EQ(window_of("~4.0×").low, 3.6);
  EXPECT_TRUE(window_of("≤12").contains(12) && !window_of("≤12").contains(12.01) &&
              window_of("≤12").contains(0));
  EXPECT_TRUE(window_of(">1×").contains(1.0000001) && !window_of(">1×").contains(1));
  EXPECT_FALSE(window_of("<0.5 %").contains(0.005));
  EXPECT_DOUBLE_EQ(window_of("30–50 %").low, 0.295);
  EXPECT_DOUBLE_EQ(window_of("30–50 %").high, 0.505);
  EXPECT_NEAR(window_of("1.75–1.9×").high, 1.905, 1e-12);
  EXPECT_DOUBLE_EQ(window_of("up to 4×").high, 4);
  EXPECT_DOUBLE_EQ(window_of("up to 30–50 %").low, 0.295);  // reaches it; less is allowed
  EXPECT_DOUBLE_EQ(window_of("up to 30–50 %").high, 0.5);
  EXPECT_DOUBLE_EQ(window_of("1.10×–1.63×").low, 1.095);
}

TEST(Figure, KnowsTruthsAndGrowthLaws) {
  EXPECT_TRUE(window_of("yes").contains(1) && !window_of("yes").contains(0));
  EXPECT_TRUE(window_of("no").contains(0));
  EXPECT_TRUE(window_of("O(T^2)").contains(1.85) && !window_of("O(T^2)").contains(1.75));
  EXPECT_TRUE(window_of("O(T²)").contains(2) && window_of("O(B)").contains(1) &&
              window_of("O(1)").contains(0.1));
}

TEST(Figure, TakesAClaimsOwnTolerance) {
  EXPECT_DOUBLE_EQ(window_of("20 ms", "factor 2").low, 10e-3);
  EXPECT_DOUBLE_EQ(window_of("20 ms", "factor 2").high, 40e-3);
  EXPECT_DOUBLE_EQ(window_of("21×", "factor 2").low, 11);  // a factor of the gain
  EXPECT_DOUBLE_EQ(window_of("21×", "factor 2").high, 41);
  EXPECT_DOUBLE_EQ(window_of("1.10×", "factor 2").low, 1.05);
  EXPECT_DOUBLE_EQ(window_of("1.10×", "factor 2").high, 1.2);
  EXPECT_DOUBLE_EQ(window_of("0.5×", "factor 2").low, 1.0 / 3);
  EXPECT_NEAR(window_of("100 GB/s", "5 %").high, 105e9, 1e-3);
  EXPECT_DOUBLE_EQ(window_of("O(T)", "±0.3").high, 1.3);
  for (const char* bad : {"", "close", "5", "factor 0.5", "-1 %"})
    EXPECT_NE(message_of([&] { claims::parse_tolerance(bad); }), "") << bad;
}

TEST(Figure, RefusesWhatIsNone) {
  for (const char* bad : {"", "big", "12 parsecs", "MB", "50–30 %", "1..2", "O(T!)"}) {
    EXPECT_NE(message_of([&] { claims::parse_figure(bad); }), "") << bad;
  }
  EXPECT_NE(message_of([] { claims::parse_figure("12 parsecs"); }).find("parsecs"), std::string::npos);
}

}  // namespace
}  // namespace kv
