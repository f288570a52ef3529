// A run's conclusions, from its rows and the columns' declarations alone. Terminal, --json, report and site display them; none of them
// ranks.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/answers/ranking.h"

namespace kv::answers {

// The best cell by one question.
struct Answer {
  std::string question;  // "fastest", "smallest", "most exact"; an error limit that some cells exceed follows
  const Row* best;       // null where the baseline's times allow no answer, as `text` says
  size_t as_good;        // others that are tied with it
  experiments::Measured
      value;  // time as a share of the baseline's; bytes a token, or in prefill of workspace; error
  experiments::Measured error;
  std::string text;  // the value for the terminal
};

struct Judged {
  const Row* row;
  std::string told;   // its verdict by the measure that ranks
  std::string front;  // see fronts()
  std::string place;  // "best", "tied" or ""
  std::string note;   // the reason to take it with care
};

struct Test {
  std::string text;  // the meaning of an A/A test for the differences at its point
  bool differs;
};

// One sweep point: cells with the same values of all axes, of one machine.
struct Finding {
  Cells cells;
  std::vector<Judged> ranked;          // those that were measured, A/A tests apart, the best first
  const Measure* main = nullptr;       // the one that ranks; null where no two cells have one in common
  std::vector<std::string> sentences;  // names of caches in backquotes
  std::vector<Answer> answers;
  std::vector<Test> tests;
};
std::vector<Finding> conclude(const Cells& cells);
// Cells by sweep point, in order.
std::vector<Cells> points_of(const Cells& cells);
std::vector<Answer> answers_at(const Cells& cells);

// A folder's cells, without the verdicts that their times do not allow. Throws std::invalid_argument if it has none, or columns or values
// that this version does not know; `skips` leaves those out.
std::vector<Row> read_cells(const std::filesystem::path& folder, bool skips = false);

// The conclusions on a folder's cells, as answers.json beside cells.csv has them, with that file's hash. Throws as read_cells() does
// with `skips`.
std::string answers_json(const std::filesystem::path& folder);
// Writes that file. Throws results::WriteError.
void write_answers(const std::filesystem::path& folder);

inline constexpr const char* kIdle = "its budget covers the whole sequence, so it kept all tokens";

// The fastest and the slowest, or why there is none; the one that loses least of few bits, or of all where nothing was timed.
// `measured`: those of the point's `cells` that have results, A/A tests apart.
std::vector<std::string> sentences_of(const Cells& cells, const Cells& measured);
// "keeps 128 of 1,024 tokens"; empty for a cache that keeps all.
std::string kept_text(const Row& row);
// The meaning of an A/A test for the differences at its sweep point.
std::string test_text(const Row& row);

}  // namespace kv::answers
