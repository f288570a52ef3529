// Request traces that others published, one request at a time, so that a file is never in memory as a whole.
//
//   .csv     Azure 2023 and 2024 (TIMESTAMP,ContextTokens,GeneratedTokens), BurstGPT (Timestamp,…,Request tokens,
//            Response tokens,…)
//   .jsonl, .json   JSON lines, or one array of their objects, which is in memory as a whole:
//            Mooncake (timestamp in ms; one of hash_ids for each started 512 tokens), Qwen-Bailian (with chat_id;
//            timestamp in seconds; an id for 16 tokens)
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

namespace kv::io {

inline constexpr int64_t kMostRequestTokens = int64_t{1} << 24;  // in a prompt, and in an answer

struct Request {
  double arrival_s = 0.0;  // after the trace's first request
  int64_t prompt_tokens = 0, output_tokens = 0;
  std::vector<int64_t> prefix_ids;  // one a block of the prompt, in order; empty if the trace has none
  int64_t id_tokens = 0;            // tokens in a block that has an id; the last may be shorter
  int64_t session = -1;  // the same for requests that continue one another; -1 if the trace does not say
};

class RequestTrace {
 public:
  // `path` ends with .jsonl or .json, or is CSV. Throws std::invalid_argument if it cannot be read, or its header has
  // no format above.
  explicit RequestTrace(const std::string& path);
  // False at the end. Throws std::invalid_argument, one line with the file and the line's number, for a line
  // that is no request, and where time goes back.
  bool next(Request& request);

 private:
  struct Columns {
    size_t count = 0, time = 0, prompt = 0, output = 0;
  };
  [[noreturn]] void refuse(const std::string& what) const;
  std::string place() const { return path_ + ":" + std::to_string(line_); }
  int64_t tokens(double count) const;
  std::vector<std::string> fields(const std::string& line) const;
  void read_header();
  double read_csv(const std::string& line, Request& request) const;
  double read_json(const nlohmann::json& value, Request& request);
  bool next_line(std::string& line);
  int64_t session_of(int64_t chat, int64_t parent);

  const std::string path_;
  const bool json_;
  std::ifstream file_;
  Columns columns_;
  nlohmann::json array_;  // rows of a .json that is one; else null
  int64_t line_ = 0;
  bool started_ = false;
  double first_s_ = 0.0, last_s_ = 0.0;
  std::unordered_map<int64_t, int64_t> sessions_;  // by Qwen-Bailian's chats
};

}  // namespace kv::io
