#include "harness/config/braces.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace kv {
namespace {

using Texts = std::vector<std::string>;

TEST(Braces, AreTheProductWithTheLastListFastest) {
  EXPECT_EQ(config::expand_braces("paged(block={1,8},order={sequential,shuffled})/{f16,q8_0}"),
            (Texts{"paged(block=1,order=sequential)/f16", "paged(block=1,order=sequential)/q8_0",
                   "paged(block=1,order=shuffled)/f16", "paged(block=1,order=shuffled)/q8_0",
                   "paged(block=8,order=sequential)/f16", "paged(block=8,order=sequential)/q8_0",
                   "paged(block=8,order=shuffled)/f16", "paged(block=8,order=shuffled)/q8_0"}));
  EXPECT_EQ(config::expand_braces("{ f16 , q8_0 }"), (Texts{"f16", "q8_0"}));
  EXPECT_EQ(config::expand_braces("concat"), Texts{"concat"});
  EXPECT_EQ(config::expand_braces(""), Texts{""});
}

TEST(Braces, WithoutACommaArePlaceholders) {
  EXPECT_EQ(config::expand_braces("{contiguous,paged}/ring(window={budget-4},sinks=4)"),
            (Texts{"contiguous/ring(window={budget-4},sinks=4)", "paged/ring(window={budget-4},sinks=4)"}));
  EXPECT_EQ(config::expand_braces("x/{f16}"), Texts{"x/{f16}"});
}

TEST(Braces, KeepTheCommasOfParameters) {
  EXPECT_EQ(config::expand_braces("contiguous/{ring(window=64,sinks=4),full}"),
            (Texts{"contiguous/ring(window=64,sinks=4)", "contiguous/full"}));
}

}  // namespace
}  // namespace kv
