// Texts of others in messages and results.
#include "harness/io/text.h"

#include <gtest/gtest.h>

#include "harness/io/json.h"
#include "tests/message_of.h"

namespace kv {
namespace {

TEST(Text, WhatIsNoUtf8IsReplacedByteByByte) {
  EXPECT_EQ(io::as_utf8("caf\xc3\xa9 \"\\\n"), "caf\xc3\xa9 \"\\\n");
  EXPECT_EQ(io::as_utf8("caf\xe9"), "caf\ufffd");
  EXPECT_EQ(io::as_utf8(std::string_view("a\0b", 3)), std::string_view("a\0b", 3));
}

TEST(Text, AMessageKeepsItsBeginningAndItsEnd) {
  EXPECT_EQ(io::shortened("short", 5), "short");
  const std::string text =
      io::shortened("file:1: '" + std::string(20'000'000, 'x') + "' is none of a, b", 90);
  EXPECT_LT(text.size(), 100u);
  EXPECT_TRUE(text.starts_with("file:1: 'xx") && text.ends_with("xx' is none of a, b")) << text;
  std::string accents;
  for (int i = 0; i < 1000; ++i) accents += "é";
  for (size_t most = 90; most < 96; ++most) {
    const std::string cut = io::shortened(accents, most);
    EXPECT_EQ(io::as_utf8(cut), cut) << "a character was cut in two";
  }
}

TEST(Text, AMessageIsOneLineButForASpecsPlace) {
  EXPECT_EQ(io::as_message("a\nb\x1b[31m\r\tc\x7f"), "a b [31m  c ");
  EXPECT_EQ(io::as_message("spec: no\n  conact\n  ^"), "spec: no\n  conact\n  ^");
  EXPECT_EQ(io::as_message("a\u009b2Jb\u0080\u009fc\u00a0\u00e9"), "a 2Jb  c\u00a0\u00e9");
}

TEST(Text, WhatIsPrintedKeepsItsLines) {
  EXPECT_EQ(io::printable("a\tb\n\nc\x1b[2J\r\u009b2J\x9b\n"), "a\tb\n\nc [2J  2J\ufffd\n");
}

TEST(Json, NestingIsLimitedWhereItIsRead) {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_TRUE(io::parse_json(nested(64), "f").is_array());
  const auto refusal = [&](const std::string& text) {
    return message_of([&] { io::parse_json(text, "f"); });
  };
  EXPECT_EQ(refusal(nested(65)), "f: its brackets are nested more than 64 deep");
  EXPECT_EQ(refusal(std::string(100'000, '[')), "f: its brackets are nested more than 64 deep");
}

TEST(Json, AMistakeHasALineAndAColumn) {
  const auto refusal = [&](const std::string& text, bool is_line = false) {
    return message_of([&] { io::parse_json(text, "f", is_line); });
  };
  const std::pair<const char*, const char*> places[] = {
      {"", "f: line 1, column 1: not JSON: "},
      {"[", "f: line 1, column 2: not JSON: "},
      {"\"\xff\"", "f: line 1, column 2: not JSON: "},
      {"{\n \"a\": 1,\n \"b\": x}", "f: line 3, column 7: not JSON: "},
      {"{}\n{}", "f: line 2, column 1: not JSON: "}};
  for (const auto& [text, place] : places) EXPECT_TRUE(refusal(text).starts_with(place)) << refusal(text);
  EXPECT_TRUE(refusal("{\"a\": x}", true).starts_with("f: column 7: not JSON: "))
      << refusal("{\"a\": x}", true);
  EXPECT_EQ(refusal("[1e400]"), "f: number overflow parsing '1e400'");
  EXPECT_LT(refusal('"' + std::string(10'000, 'x')).size(), 400u);
}

TEST(Json, NumbersThatOnlyPythonWritesAreTexts) {
  EXPECT_EQ(
      io::parse_json(R"({"limit": [0.0, Infinity, -Infinity], "NaN": "a \"NaN", "n":NaN})", "f"),
      nlohmann::json::parse(R"({"limit": [0.0, "Infinity", "-Infinity"], "NaN": "a \"NaN", "n":"NaN"})"));
  const std::string said = message_of([] { io::parse_json("{\"a\": NaN,\n\"b\": Infinity x}", "f"); });
  EXPECT_TRUE(said.starts_with("f: line 2, column 15: not JSON: ")) << said;
}

TEST(Json, AnyTextCanBeWritten) {
  EXPECT_EQ(io::json_text({{"path", "caf\xe9"}}), "{\"path\":\"caf\ufffd\"}");
  EXPECT_LT(io::shown(std::string(1000, 'x')).size(), 100u);
}

}  // namespace
}  // namespace kv
