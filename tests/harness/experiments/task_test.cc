// Questions about a text: read back as text and answered by a search that knows nothing of how they were written.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <stdexcept>

#include "harness/experiments/task/questions.h"
#include "harness/io/mapped_file.h"

namespace kv::experiments {
namespace {

constexpr int64_t kTaskTokens = 1500;

std::vector<int> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(std::span<const int> ids) { return {ids.begin(), ids.end()}; }

// A token a byte, so that ids can be read.
const Lexicon& lexicon() {
  static const std::string text = io::read_text(KVLAB_SOURCE_DIR "/configs/tasks.txt");
  static const Lexicon lexicon(text, bytes_of(text));
  return lexicon;
}

// The same, but for a token each that begins and ends a turn.
const Lexicon& lexicon_with_turns() {
  static const std::string text = io::read_text(KVLAB_SOURCE_DIR "/configs/tasks.txt");
  static const Lexicon lexicon = [] {
    std::vector<int> ids;
    for (size_t at = 0; at < text.size(); ++at) {
      for (const auto& [mark, id] : {std::pair("<|im_start|>", 1), std::pair("<|im_end|>", 2)}) {
        if (!text.substr(at).starts_with(mark)) continue;
        ids.push_back(id);
        at += std::string(mark).size();
      }
      ids.push_back(text[at]);
    }
    return Lexicon(text, ids);
  }();
  return lexicon;
}

// A haystack of one character that no piece has.
std::vector<int> haystack() { return std::vector<int>(kTaskTokens, '-'); }

struct Read {
  std::string before, question, answer;
};
Read read(const std::string& task, int64_t depth, uint64_t key, bool chat = false) {
  const Question q =
      ask(task, chat ? lexicon_with_turns() : lexicon(), haystack(), kTaskTokens, depth, chat, key);
  EXPECT_EQ(std::ssize(q.ids), kTaskTokens);
  const std::string all = text_of(q.ids);
  const auto question = static_cast<size_t>(q.question), answer = static_cast<size_t>(q.answer);
  return {all.substr(0, question), all.substr(question, answer - question), all.substr(answer)};
}

std::smatch match(const std::string& text, const std::string& pattern) {
  std::smatch found;
  EXPECT_TRUE(std::regex_search(text, found, std::regex(pattern))) << pattern << "\nin " << text;
  return found;
}

std::vector<std::smatch> all_matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return {std::sregex_iterator(text.begin(), text.end(), regex), std::sregex_iterator()};
}

std::string joined(const std::vector<std::smatch>& found) {
  std::string words;
  for (const std::smatch& m : found) words += (words.empty() ? "" : ",") + m[1].str();
  return words;
}

// Answers to RULER's tasks that are no other ones by another name.
std::string found_of_ruler(const std::string& task, const Read& r) {
  if (task == "niah_multiquery") {
    std::string words;
    const std::string asked = match(r.question, "words of( the [\\w ]+)\\?")[1];
    for (const std::smatch& key : all_matches(asked, " the (\\w+)"))
      words += (words.empty() ? "" : ",") +
               match(r.before, "The secret word of the " + key[1].str() + " is( \\w+)\\.")[1].str();
    return words;
  }
  if (task == "vt") {
    std::string last = match(r.question, "Which names are (\\w+)\\?")[1], names;
    for (int link = 0; link < 5; ++link) {
      last = match(r.before, "Let (\\w+) be " + last + "\\.")[1];
      names += (names.empty() ? " " : ", ") + last;
    }
    return names;
  }
  const std::string list = match(r.before, "The list:([ \\w,]+)\\.")[1];
  std::map<std::string, int> counts;
  for (const std::smatch& m : all_matches(list, "( \\w+)")) ++counts[m[1]];
  std::vector<std::smatch> first;
  for (const std::smatch& m : all_matches(list, "( \\w+)")) {
    const auto known = [&](const std::smatch& f) { return f[1] == m[1]; };
    if (std::ranges::none_of(first, known)) first.push_back(m);
  }
  EXPECT_EQ(first.size(), task == "cwe" ? 20u : 12u);
  if (task == "fwe")
    std::ranges::stable_sort(first, std::greater(), [&](const std::smatch& m) { return counts[m[1]]; });
  std::erase_if(first, [&](const std::smatch& m) { return counts[m[1]] < (task == "cwe" ? 6 : 2); });
  return joined(first);
}

// Answers by search.
std::string found_in(const std::string& task, const Read& r) {
  if (task == "niah_single_2") return found_in("single", r);
  if (task == "niah_multikey_1") return found_in("keys", r);
  if (task == "niah_multivalue") return found_in("values", r);
  if (task == "niah_multiquery" || task == "vt" || task == "cwe" || task == "fwe")
    return found_of_ruler(task, r);
  if (task == "single" || task == "keys") {
    const std::string key = match(r.question, "word of the (\\w+)\\?")[1];
    return match(r.before, "The secret word of the " + key + " is( \\w+)\\.")[1];
  }
  if (task == "two") {
    const std::vector<std::smatch> asked =
        all_matches(r.question, "Question: What is the secret word of the (\\w+)\\?");
    EXPECT_EQ(asked.size(), 2u);
    const auto word = [&](const std::string& key) -> std::string {
      return match(r.before, "The secret word of the " + key + " is( \\w+)\\.")[1];
    };
    EXPECT_NE(r.question.find(" is" + word(asked[0][1]) + (r.before[0] == '\1' ? ".\2\n" : ".\n")),
              std::string::npos)
        << "the first is answered";
    return word(asked[1][1]);
  }
  if (task == "queries") {
    const std::smatch keys = match(r.question, "words of the (\\w+) and the (\\w+)\\?");
    const auto word = [&](const std::string& key) -> std::string {
      return match(r.before, "The secret word of the " + key + " is( \\w+)\\.")[1];
    };
    return word(keys[1]) + "," + word(keys[2]);
  }
  if (task == "words") {
    const std::string list = match(r.before, "The list:([ \\w,]+)\\.")[1];
    std::map<std::string, int> counts;
    for (const std::smatch& m : all_matches(list, " \\w+")) ++counts[m[0]];
    EXPECT_EQ(counts.size(), 13u);
    const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto most = std::max_element(counts.begin(), counts.end(), less);
    EXPECT_EQ(most->second, 6);
    return most->first;
  }
  if (task == "values") {
    const std::string key = match(r.question, "words of the (\\w+)\\?")[1];
    std::string answer;
    for (const std::smatch& m : all_matches(r.before, "One secret word of the " + key + " is( \\w+)\\."))
      answer += (answer.empty() ? "" : ",") + m[1].str();
    return answer;
  }
  if (task == "lookup") {
    const std::string key = match(r.question, "The value of \"(\\w+)\" is \"")[1];
    return match(r.before, "\"" + key + "\": \"(\\w+)\"")[1];
  }
  if (task == "variables") {
    std::string name = match(r.question, "What is (\\w+)\\?")[1];
    for (int link = 0; link < 3; ++link) name = match(r.before, "Let " + name + " be (\\w+)\\.")[1];
    return " " + name;
  }
  return match(r.before, "The record:\n(\\{.*\\})\n")[1];
}

const std::vector<std::string> kNames{
    "single", "keys", "two",           "queries",         "values",          "lookup",          "variables",
    "words",  "copy", "niah_single_2", "niah_multikey_1", "niah_multivalue", "niah_multiquery", "vt",
    "cwe",    "fwe"};

TEST(Task, TheAnswerIsInTheText) {
  for (const std::string& task : kNames) {
    for (const int64_t depth : {1, 50, 100}) {
      for (const uint64_t key : {1, 2, 3}) {
        const Read r = read(task, depth, key);
        EXPECT_EQ(found_in(task, r), r.answer) << task << " at " << depth;
      }
    }
  }
}

TEST(Task, TurnsStandAroundTheTextWithItsQuestion) {
  for (const std::string& task : kNames) {
    const Read r = read(task, 50, 3, true);
    EXPECT_EQ(found_in(task, r), r.answer) << task;
    const std::regex turns("[\1\2](user|assistant|)\n");
    std::string told;
    const std::string all = r.before + r.question + r.answer;
    for (auto at = std::sregex_iterator(all.begin(), all.end(), turns); at != std::sregex_iterator(); ++at)
      told += (*at)[1].length() > 0 ? std::string((*at)[1]) + " " : "end ";
    const std::string turn = "user end assistant ";
    EXPECT_EQ(told, task == "two" ? turn + "end " + turn : turn) << task;
    EXPECT_TRUE(r.before.starts_with("\1user\n")) << task;
    const std::string plain = read(task, 50, 3).question;
    EXPECT_EQ(r.question.substr(r.question.rfind('\n')), plain.substr(plain.rfind('\n'))) << task;
  }
  EXPECT_THROW(ask("single", lexicon(), haystack(), kTaskTokens, 50, true, 3), std::invalid_argument);
}

TEST(Task, TheFirstOfTwoQuestionsEndsBeforeItsAnswer) {
  for (const std::string& task : kNames) {
    const Question q = ask(task, lexicon(), haystack(), kTaskTokens, 50, false, 3);
    const std::string known = text_of(
        std::span(q.ids).subspan(static_cast<size_t>(q.question), static_cast<size_t>(q.asked - q.question)));
    EXPECT_EQ(q.asked == q.answer, task != "two") << task;
    EXPECT_EQ(all_matches(known, "Question:").size(),
              all_matches(read(task, 50, 3).question, "Question:").size() - (task == "two" ? 1 : 0));
  }
}

// A search for the answer's own sentence, in characters of the haystack alone.
TEST(Task, StandsAtItsDepth) {
  for (const int64_t depth : {10, 50, 90}) {
    for (const std::string task : {"single", "keys", "two", "words"}) {
      const Read r = read(task, depth, 5);
      const std::string sentence = task == "words" ? "The list:" : " is" + r.answer + "\\.";
      const auto at = static_cast<size_t>(match(r.before, sentence).position());
      const auto hay = [](const std::string& text) {
        return static_cast<double>(std::count(text.begin(), text.end(), '-'));
      };
      EXPECT_NEAR(hay(r.before.substr(0, at)) / hay(r.before), static_cast<double>(depth) / 100, 0.002)
          << task;
    }
  }
}

TEST(Task, DrawsBySeedAloneAndDepthMovesWordsNot) {
  for (const std::string& task : kNames) {
    std::set<std::string> answers;
    for (uint64_t key = 0; key < 20; ++key) answers.insert(read(task, 50, key).answer);
    EXPECT_GE(answers.size(), 8u) << task;
    EXPECT_EQ(read(task, 50, 4).answer, read(task, 50, 4).answer);
    if (task == "lookup") continue;
    EXPECT_EQ(read(task, 10, 4).answer, read(task, 90, 4).answer) << task;
  }
}

TEST(Task, AllAnswersHaveEquallyManyTokens) {
  for (const std::string& task : kNames) {
    const Question first = ask(task, lexicon(), haystack(), kTaskTokens, 50, false, 0);
    for (uint64_t key = 1; key < 10; ++key) {
      const Question q = ask(task, lexicon(), haystack(), kTaskTokens, 50, false, key);
      EXPECT_EQ(q.answer, first.answer) << task;
      EXPECT_EQ(q.question, first.question) << task;
    }
  }
}

TEST(Task, ALookupFillsTheTextWithPairs) {
  const Read r = read("lookup", 50, 1);
  EXPECT_GT(all_matches(r.before, "\"\\w+\": \"\\w+\"").size(), 20u);
  std::set<std::string> keys;
  for (const std::smatch& m : all_matches(r.before, "\"(\\w+)\": "))
    EXPECT_TRUE(keys.insert(m[1]).second) << m[1];
}

TEST(Task, RefusesWhatDoesNotFit) {
  for (const std::string& task : kNames)
    EXPECT_THROW(ask(task, lexicon(), haystack(), 60, 50, false, 1), std::invalid_argument) << task;
  EXPECT_THROW(check_task_name("needle"), std::invalid_argument);
  EXPECT_THROW(lexicon().ids_of("no such piece"), std::logic_error);
  const std::string text = "first\none\nlast\n";
  EXPECT_THROW(Lexicon(text, std::vector<int>{1, 2, 3}), std::invalid_argument);
  EXPECT_THROW(Lexicon(text, bytes_of(text)), std::invalid_argument);  // no words
  EXPECT_THROW(Lexicon(text, {}), std::invalid_argument);
}

}  // namespace
}  // namespace kv::experiments
