// Request traces: every format, and what is said of lines that are none.
#include "harness/io/request_trace.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/message_of.h"
#include "tests/temp.h"

namespace kv::io {
namespace {

namespace fs = std::filesystem;

class Traces : public testing::Test {
 protected:
  std::vector<Request> read(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    RequestTrace trace((folder_ / name).string());
    std::vector<Request> all;
    for (Request request; trace.next(request);) all.push_back(request);
    return all;
  }
  std::string refusal(const std::string& name, const std::string& text) {
    return test::refusal([&] { read(name, text); });
  }

  const test::TempFolder folder_;
};

void expect_request(const Request& r, double arrival_s, int64_t prompt, int64_t output) {
  EXPECT_NEAR(r.arrival_s, arrival_s, 1e-5);
  EXPECT_EQ(r.prompt_tokens, prompt);
  EXPECT_EQ(r.output_tokens, output);
}

TEST_F(Traces, OfAzureCountSecondsOverMidnightAndMonths) {
  // 2023's dates, then 2024's, which state a zone; the last line may lack its line feed.
  const auto old = read("a.csv",
                        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-30 23:59:59.5000000,374,44\r\n"
                        "2023-12-01 00:00:01.2500000,396,109");
  ASSERT_EQ(old.size(), 2u);
  expect_request(old[0], 0.0, 374, 44);
  expect_request(old[1], 1.75, 396, 109);
  const auto newer = read("b.csv",
                          "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n"
                          "2024-05-10 00:00:00.017335+00:00,2399,6\n");
  ASSERT_EQ(newer.size(), 2u);
  expect_request(newer[1], 0.007405, 2399, 6);
}

TEST_F(Traces, OfBurstGptAreFoundByTheirColumns) {
  const auto all = read("b.csv",
                        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                        "5,ChatGPT,472,18,490,Conversation log\n45,\"GPT-4, new\",1087,0,1087,API log\n");
  ASSERT_EQ(all.size(), 2u);
  expect_request(all[0], 0.0, 472, 18);
  expect_request(all[1], 40.0, 1087, 0);
}

TEST_F(Traces, OfMooncakeAndBailianBringIds) {
  const auto mooncake =
      read("m.jsonl",
           "{\"timestamp\": 0, \"input_length\": 513, \"output_length\": 5, \"hash_ids\": [7, 9]}\n"
           "{\"timestamp\": 1500, \"input_length\": 512, \"output_length\": 5, \"hash_ids\": [7]}\n");
  ASSERT_EQ(mooncake.size(), 2u);
  expect_request(mooncake[1], 1.5, 512, 5);
  EXPECT_EQ(mooncake[0].prefix_ids, (std::vector<int64_t>{7, 9}));
  EXPECT_EQ(mooncake[0].id_tokens, 512);
  const auto bailian =
      read("q.jsonl",
           "{\"chat_id\": 159, \"parent_chat_id\": -1, \"timestamp\": 61.114, \"input_length\": 33, "
           "\"output_length\": 132, \"type\": \"text\", \"turn\": 1, \"hash_ids\": [1, 2, 3]}\n"
           "{\"chat_id\": 160, \"parent_chat_id\": 159, \"timestamp\": 62.114, \"input_length\": 33, "
           "\"output_length\": 1, \"type\": \"text\", \"turn\": 2, \"hash_ids\": [1, 2]}\n");
  ASSERT_EQ(bailian.size(), 2u);
  expect_request(bailian[1], 1.0, 33, 1);
  EXPECT_EQ(bailian[0].id_tokens, 16);
}

TEST_F(Traces, OfJsonAreLinesOrOneArray) {
  const std::string a = R"({"timestamp": 0, "input_length": 7, "output_length": 5})",
                    b = R"({"timestamp": 500, "input_length": 8.0, "output_length": 1})";
  for (const std::string& text : {a + "\n" + b + "\n", " [" + a + ",\n" + b + "]\n"}) {
    const auto both = read("t.json", text);
    ASSERT_EQ(both.size(), 2u) << text;
    expect_request(both[1], 0.5, 8, 1);
  }
  EXPECT_EQ(read("t.json", "[]").size(), 0u);
  EXPECT_NE(refusal("t.json", "[" + a + ", 3]").find("t.json:2: not a JSON object"), std::string::npos);
}

TEST_F(Traces, MayBeginWithAByteOrderMarkAndEndWithBlankLines) {
  const std::string mark = "\xEF\xBB\xBF";
  EXPECT_EQ(read("t.csv", mark + "TIMESTAMP,ContextTokens,GeneratedTokens\r\n1,5,5\r\n\r\n \n").size(), 1u);
  EXPECT_EQ(
      read("t.jsonl", mark + "{\"timestamp\": 9, \"input_length\": 5, \"output_length\": 5}\n\n").size(), 1u);
}

}  // namespace
}  // namespace kv::io
