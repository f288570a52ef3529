// Questions about a text, after the public definitions of needle-in-a-haystack tests: a text ("haystack"), in which sentences stand
// that are asked for at its end. They are written from the pieces of configs/tasks.txt, which a tokenizer reads once, so that
// any tokenizer will do and an answer's tokens are known.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/math/random.h"
#include "harness/results/row.h"

namespace kv::experiments {

// single: a sentence names a key's word. keys: four sentences, one key is asked for. two: five, and another key is asked for and
// answered before. queries: the words of two keys. values: three words of one key, in order. lookup: a key's value in a JSON
// object of as many pairs as the text holds. variables: a word passed on from name to name, beside another such chain. words: the
// one that comes six times in a list. copy: a JSON object of six pairs. RULER's (arXiv:2404.06654): niah_single_2 is single,
// niah_multikey_1 is keys; niah_multivalue: four words of a key; niah_multiquery: of four keys; vt: the five names that a word
// was passed on to; cwe: ten words that come six times; fwe: the three most frequent words, whose counts fall as 1 / rank^2.
// Throws std::invalid_argument for another name.
void check_task_name(const std::string& name);

// The token ids of each piece.
class Lexicon {
 public:
  // `text`: configs/tasks.txt, a piece a line, the first and last line apart. `ids`: a tokenizer's of all of it. Throws
  // std::invalid_argument if the tokenizer does not keep line breaks apart.
  Lexicon(std::string_view text, std::span<const int> ids);

  // Throws std::logic_error for a piece that is not there.
  const std::vector<int>& ids_of(const std::string& piece) const;
  int line_break() const { return line_break_; }
  // Words that stand with a space before them and without, in equally many tokens all, so that answers have equally many.
  const std::vector<std::string>& words() const { return words_; }

 private:
  std::map<std::string, std::vector<int>> ids_;
  std::vector<std::string> words_;
  int line_break_ = 0;
};

// A text that ends with a question and its answer.
struct Question {
  std::vector<int> ids;
  int64_t question = 0, answer = 0;  // where they begin
  int64_t asked = 0;                 // where the question, or the first of two, ends
};

// `haystack`: at least `tokens` ids, of which the beginning fills what the task leaves. `depth`: percent of it that stand
// before what is asked for. `chat`: text and question are a turn of ChatML. `key`: of random numbers (math/random.h), which
// draw the words whatever the depth. Throws std::invalid_argument if `tokens` are too few for the task, or if the tokenizer
// has no token that ends a turn.
Question ask(const std::string& task, const Lexicon& lexicon, std::span<const int> haystack, int64_t tokens,
             int64_t depth, bool chat, uint64_t key);

// Compares each variant's answers with the full f32 cache's over all questions of a configuration, at every usable depth and
// length: paired (McNemar, exact), all verdicts of a configuration right together with 95 % (Holm) over the variants that some
// answers could decide (Tarone). Sets the pooled columns and the verdicts of `cells`, from their other columns alone.
void judge_tasks(std::span<results::Row* const> cells);

}  // namespace kv::experiments
