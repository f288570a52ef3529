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

TEST(Braces, AreRefusedInOneLine) {
  const auto refused = [](const std::string& text) -> std::string {
    try {
      config::expand_braces(text);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(refused("{f16,{q8_0,q4_0}}"),
            "braces inside braces are not known; write them as variants of their own");
  EXPECT_EQ(refused("paged(block={1,8)"), "a '{' has no '}'");
  EXPECT_EQ(refused("paged(block=1,8})"), "a '}' has no '{' before it");
  for (const char* empty : {"{}", "{ }", "{f16,}", "{,f16}", "{f16, ,q8_0}"})
    EXPECT_NE(refused(std::string("concat/") + empty).find("has an empty item; a list is as {f16,q8_0}"),
              std::string::npos)
        << empty;
  std::string many;
  for (int i = 0; i < 4; ++i) many += "{0,1,2,3,4,5,6,7,8,9}";
  EXPECT_EQ(refused(many), "its lists make more than 1000 variants");
}

}  // namespace
}  // namespace kv
