#include "harness/choose/choice.h"

#include <gtest/gtest.h>

namespace kv {
namespace {

constexpr choose::FirstWindow kFirst{.seconds = 10, .confirmation_share = 0.5, .mixture_windows = 8};

TEST(Minutes, WindowsAreLeftOutAndThenTheMixture) {
  const auto fitting = [](double seconds, bool mixture) {
    return choose::fitting_parts(seconds, kFirst, {.windows = 8, .mixture = mixture});
  };
  EXPECT_EQ(fitting(1000, true).windows, 8);
  EXPECT_TRUE(fitting(1000, true).mixture);
  EXPECT_EQ(fitting(200, true).windows, 6);  // (190 s - 19 s) / 10 s - 8, of 1.5 each
  EXPECT_TRUE(fitting(200, true).mixture);
  EXPECT_EQ(fitting(150, true).windows, 8);  // of which the mixture would leave 3
  EXPECT_FALSE(fitting(150, true).mixture);
  EXPECT_EQ(fitting(100, false).windows, 5);
  EXPECT_EQ(fitting(20, false).windows, 0);
  EXPECT_EQ(fitting(1, false).windows, 0);
}

TEST(Minutes, WhatASizeNeedsHasRoomForIt) {
  for (int windows = 1; windows < 20; ++windows) {
    const double seconds = choose::seconds_for(windows, kFirst);
    EXPECT_EQ(choose::fitting_parts(seconds + 1e-6, kFirst, {20, false}).windows, windows);
    EXPECT_EQ(choose::fitting_parts(seconds - 1e-3, kFirst, {20, false}).windows, windows - 1);
  }
}

}  // namespace
}  // namespace kv
