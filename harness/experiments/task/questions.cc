#include "harness/experiments/task/questions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "harness/io/text.h"

namespace kv::experiments {
namespace {

using Ids = std::vector<int>;
const std::string kUser = "<|im_start|>user", kEnd = "<|im_end|>";

// Words in a random order, each once.
class Draw {
 public:
  Draw(const Lexicon& lexicon, uint64_t key) : words_(lexicon.words()) {
    for (size_t i = words_.size(); i > 1; --i)
      std::swap(words_[i - 1], words_[math::random::below(key, i, static_cast<uint64_t>(i))]);
  }
  const std::string& next() { return words_.at(at_++); }

 private:
  std::vector<std::string> words_;
  size_t at_ = 0;
};

// Joins pieces; "\n" is a line break.
Ids write(const Lexicon& lexicon, const std::vector<std::string>& pieces) {
  Ids ids;
  for (const std::string& piece : pieces) {
    if (piece == "\n") {
      ids.push_back(lexicon.line_break());
    } else {
      const Ids& more = lexicon.ids_of(piece);
      ids.insert(ids.end(), more.begin(), more.end());
    }
  }
  return ids;
}

// What stands in the text, where, and what is asked at its end.
struct Scene {
  std::vector<std::pair<double, Ids>> needles;  // share of the haystack before each
  Ids question, answer;
  Ids next = {};  // between them: the first question's answer, and another question
};

// What a scene is made of.
struct Making {
  const Lexicon& lexicon;
  int64_t tokens;  // of the whole text
  double depth;    // share of the haystack
  bool chat;
  uint64_t key;
  Draw draw{lexicon, key};

  Ids write(const std::vector<std::string>& pieces) const { return experiments::write(lexicon, pieces); }
  // From a question to its answer: a line break, or the assistant's turn.
  std::vector<std::string> asking(std::vector<std::string> question,
                                  const std::vector<std::string>& reply) const {
    if (chat) question.insert(question.end(), {kEnd, "\n", "<|im_start|>assistant"});
    question.emplace_back("\n");
    question.insert(question.end(), reply.begin(), reply.end());
    return question;
  }
  Ids secret(const std::string& named, const std::string& value) const {
    return write({"\n", "The secret word of the", " " + named, " is", " " + value, ".", "\n"});
  }
  Ids ask_secret(const std::string& named) const {
    return write(asking({"\n", "Question: What is the secret word of the", " " + named, "?"},
                        {"Answer: The secret word of the", " " + named, " is"}));
  }
};

Scene single(Making& m) {
  const std::string named = m.draw.next(), value = m.draw.next();
  return {{{m.depth, m.secret(named, value)}}, m.ask_secret(named), m.write({" " + value})};
}

Scene keys(Making& m) {
  Scene scene = single(m);
  constexpr int kOthers = 3;
  for (int i = 0; i < kOthers; ++i) {
    const std::string named = m.draw.next();
    scene.needles.emplace_back((i + 0.5) / kOthers, m.secret(named, m.draw.next()));
  }
  return scene;
}

// The question of keys(), behind another, whose sentence lies in the middle.
Scene two(Making& m) {
  Scene scene = keys(m);
  const std::string named = m.draw.next(), value = m.draw.next();
  scene.needles.emplace_back(0.5, m.secret(named, value));
  scene.next = m.chat ? m.write({" " + value, ".", kEnd, "\n", kUser}) : m.write({" " + value, "."});
  scene.next.insert(scene.next.end(), scene.question.begin(), scene.question.end());
  scene.question = m.ask_secret(named);
  return scene;
}

// The words of several keys, of which the first lies at the depth.
Scene queries_of(Making& m, int count) {
  Scene scene;
  std::vector<std::string> question, reply;
  for (int i = 0; i < count; ++i) {
    const std::string named = " " + m.draw.next(), value = " " + m.draw.next();
    scene.needles.emplace_back(i == 0 ? m.depth : (i - 0.5) / (count - 1),
                               m.write({"\n", "The secret word of the", named, " is", value, ".", "\n"}));
    for (auto* keys : {&question, &reply}) {
      if (i > 0) keys->emplace_back(" and the");
      keys->push_back(named);
    }
    const Ids more = i == 0 ? m.write({value}) : m.write({",", value});
    scene.answer.insert(scene.answer.end(), more.begin(), more.end());
  }
  question.insert(question.begin(), {"\n", "Question: What are the secret words of the"});
  question.emplace_back("?");
  reply.insert(reply.begin(), "Answer: The secret words of the");
  reply.emplace_back(" are");
  scene.question = m.write(m.asking(question, reply));
  return scene;
}

// A list at the depth, in which the word drawn i-th comes times[i] times; the first `asked` are asked for, in their order in
// the list or, by_count, of their counts.
Scene list_of(Making& m, const std::vector<int>& times, size_t asked, bool by_count) {
  std::vector<std::string> list, often;
  for (size_t i = 0; i < times.size(); ++i) {
    const std::string word = " " + m.draw.next();
    list.insert(list.end(), static_cast<size_t>(times[i]), word);
    if (i < asked) often.push_back(word);
  }
  for (size_t i = list.size(); i > 1; --i)
    std::swap(list[i - 1], list[math::random::below(m.key, 2000 + i, static_cast<uint64_t>(i))]);
  const auto place = [&](const std::string& word) { return std::ranges::find(list, word) - list.begin(); };
  if (!by_count) std::ranges::sort(often, {}, place);
  std::vector<std::string> pieces{"\n", "The list:"}, answer;
  for (const std::string& word : list) pieces.insert(pieces.end(), {word, ","});
  pieces.back() = ".";
  pieces.emplace_back("\n");
  for (const std::string& word : often) answer.insert(answer.end(), {",", word});
  answer.erase(answer.begin());
  const bool one = asked == 1;
  return {{{m.depth, m.write(pieces)}},
          m.write(m.asking({"\n", one ? "Question: Which word is most often in the list?"
                                      : "Question: Which words are most often in the list?"},
                           {one ? "Answer: The word" : "Answer: The words"})),
          m.write(answer)};
}

// So many words, of which the first `often` come six times and the others once.
Scene common_words(Making& m, size_t often, size_t others) {
  constexpr int kTimes = 6;
  std::vector<int> times(often, kTimes);
  times.resize(often + others, 1);
  return list_of(m, times, often, false);
}

// Counts fall with the square of a word's rank (Zipf's law, alpha = 2).
Scene frequent_words(Making& m) {
  constexpr int kMost = 20, kWords = 12;
  std::vector<int> times;
  for (int rank = 1; rank <= kWords; ++rank) times.push_back(std::max(1, kMost / (rank * rank)));
  return list_of(m, times, 3, true);
}

Scene values_of(Making& m, int count) {
  const std::string named = " " + m.draw.next();
  Scene scene;
  for (int i = 0; i < count; ++i) {
    const std::string value = " " + m.draw.next();
    scene.needles.emplace_back(m.depth + (1 - m.depth) * i / count,
                               m.write({"\n", "One secret word of the", named, " is", value, ".", "\n"}));
    const Ids more = i == 0 ? m.write({value}) : m.write({",", value});
    scene.answer.insert(scene.answer.end(), more.begin(), more.end());
  }
  scene.question = m.write(m.asking({"\n", "Question: What are the secret words of the", named, "?"},
                                    {"Answer: The secret words of the", named, " are"}));
  return scene;
}

Ids object_of(const Lexicon& lexicon, const std::vector<std::pair<std::string, std::string>>& pairs) {
  Ids ids;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Ids more = write(lexicon, {i == 0 ? "{\"" : "\", \"", pairs[i].first, "\": \"", pairs[i].second});
    ids.insert(ids.end(), more.begin(), more.end());
  }
  const Ids end = write(lexicon, {"\"}"});
  ids.insert(ids.end(), end.begin(), end.end());
  return ids;
}

// The object fills the text but for the rest of a pair. Each key is a word, so that there are at most as many pairs.
Scene lookup(Making& m) {
  const auto& words = m.lexicon.words();
  const auto ask_value = [&](const std::string& named) {
    const std::vector<std::string> question{"\n", "Question: What is", " " + named, "?"};
    return m.write(
        m.asking(m.chat ? question : std::vector<std::string>(), {"The value of \"", named, "\" is \""}));
  };
  const Ids question = ask_value(words[0]);
  const auto pair = std::ssize(m.write({"\", \"", words[0], "\": \"", words[0]}));
  const int64_t room = m.tokens - std::ssize(question) - std::ssize(m.write({"\n", "{\"", "\"}", words[0]}));
  const int64_t count = std::min(room / pair, std::ssize(words));
  if (count < 2) return {{{0.0, Ids(static_cast<size_t>(m.tokens))}}, question, m.write({words[0]})};
  std::vector<std::pair<std::string, std::string>> pairs;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t drawn = math::random::below(m.key, static_cast<uint64_t>(1000 + i), words.size());
    pairs.emplace_back(m.draw.next(), words[drawn]);
  }
  const auto& [named, value] =
      pairs[static_cast<size_t>(std::lround(m.depth * static_cast<double>(count - 1)))];
  Ids object = m.write({"\n"});
  const Ids written = object_of(m.lexicon, pairs);
  object.insert(object.end(), written.begin(), written.end());
  return {{{0.5, object}}, ask_value(named), m.write({value})};
}

Scene variables(Making& m) {
  constexpr int kLinks = 3, kChains = 2;
  Scene scene;
  for (int chain = 0; chain < kChains; ++chain) {
    const std::string value = " " + m.draw.next();
    std::string last = value;
    for (int i = 0; i < kLinks; ++i) {
      const std::string name = " " + m.draw.next();
      const double at = chain == 0 ? m.depth + (1 - m.depth) * i / kLinks : (i + 0.5) / kLinks;
      scene.needles.emplace_back(at, m.write({"\n", "Let", name, " be", last, ".", "\n"}));
      last = name;
    }
    if (chain > 0) continue;
    scene.question = m.write(m.asking({"\n", "Question: What is", last, "?"}, {"Answer:", last, " is"}));
    scene.answer = m.write({value});
  }
  return scene;
}

// One chain of a value and five names, which are asked for in their order.
Scene variable_tracking(Making& m) {
  constexpr int kNames = 5;
  Scene scene;
  const std::string value = " " + m.draw.next();
  std::string last = value;
  for (int i = 0; i < kNames; ++i) {
    const std::string name = " " + m.draw.next();
    scene.needles.emplace_back(m.depth + (1 - m.depth) * i / kNames,
                               m.write({"\n", "Let", name, " be", last, ".", "\n"}));
    const Ids more = i == 0 ? m.write({name}) : m.write({",", name});
    scene.answer.insert(scene.answer.end(), more.begin(), more.end());
    last = name;
  }
  scene.question =
      m.write(m.asking({"\n", "Question: Which names are", value, "?"}, {"Answer: The names are"}));
  return scene;
}

Scene copy(Making& m) {
  constexpr int kPairs = 6;
  std::vector<std::pair<std::string, std::string>> pairs;
  for (int i = 0; i < kPairs; ++i) {
    const std::string named = m.draw.next();
    pairs.emplace_back(named, m.draw.next());
  }
  const Ids object = object_of(m.lexicon, pairs);
  Ids needle = m.write({"\n", "The record:", "\n"});
  needle.insert(needle.end(), object.begin(), object.end());
  needle.push_back(m.lexicon.line_break());
  return {{{m.depth, needle}}, m.write(m.asking({"\n", "A copy of the record:"}, {})), object};
}

std::vector<Ids> split(std::span<const int> ids, int at) {
  std::vector<Ids> pieces(1);
  for (const int id : ids) {
    if (id == at) {
      pieces.emplace_back();
    } else {
      pieces.back().push_back(id);
    }
  }
  return pieces;
}

struct Task {
  std::string_view name;
  Scene (*scene)(Making& making);
};
constexpr std::array kTasks{
    Task{"single", single}, Task{"keys", keys}, Task{"two", two},
    Task{"queries", [](Making& m) { return queries_of(m, 2); }},
    Task{"values", [](Making& m) { return values_of(m, 3); }}, Task{"lookup", lookup},
    Task{"variables", variables}, Task{"words", [](Making& m) { return common_words(m, 1, 12); }},
    Task{"copy", copy},
    // RULER's names
    Task{"niah_single_2", single}, Task{"niah_multikey_1", keys},
    Task{"niah_multivalue", [](Making& m) { return values_of(m, 4); }},
    Task{"niah_multiquery", [](Making& m) { return queries_of(m, 4); }}, Task{"vt", variable_tracking},
    Task{"cwe", [](Making& m) { return common_words(m, 10, 10); }}, Task{"fwe", frequent_words}};

const Task& task_named(const std::string& name) {
  const auto found =
      std::find_if(kTasks.begin(), kTasks.end(), [&](const Task& t) { return t.name == name; });
  if (found != kTasks.end()) return *found;
  throw std::invalid_argument("no task '" + name + "'; known: " + io::joined_names(kTasks));
}

}  // namespace

void check_task_name(const std::string& name) { task_named(name); }

Lexicon::Lexicon(std::string_view text, std::span<const int> ids) {
  std::vector<std::string> lines;
  for (size_t from = 0; from < text.size();) {
    const size_t to = std::min(text.find('\n', from), text.size());
    lines.emplace_back(text.substr(from, to - from));
    from = to + 1;
  }
  // A line break is the token that comes as often as there are lines and leaves no line empty.
  std::map<int, size_t> counts;
  for (const int id : ids) ++counts[id];
  std::vector<std::vector<int>> pieces;
  const auto found = std::find_if(counts.begin(), counts.end(), [&](const auto& token) {
    if (token.second != lines.size()) return false;
    pieces = split(ids, token.first);
    return std::none_of(pieces.begin(), pieces.end() - 1, [](const auto& piece) { return piece.empty(); });
  });
  if (found == counts.end() || lines.size() < 3)
    throw std::invalid_argument(
        "tasks cannot be written in this model's tokens: its tokenizer does not keep line breaks apart");
  line_break_ = found->first;
  for (size_t i = 1; i + 1 < lines.size(); ++i) ids_[lines[i]] = std::move(pieces[i]);
  std::map<std::pair<size_t, size_t>, std::vector<std::string>> by_tokens;
  for (const auto& [word, bare] : ids_) {
    if (const auto spaced = ids_.find(" " + word); spaced != ids_.end())
      by_tokens[{bare.size(), spaced->second.size()}].push_back(word);
  }
  for (const auto& [tokens, words] : by_tokens) {
    if (words.size() > words_.size()) words_ = words;
  }
  constexpr size_t kLeast = 16;  // of a copied object
  if (words_.size() < kLeast)
    throw std::invalid_argument("tasks cannot be written in this model's tokens: it has only " +
                                std::to_string(words_.size()) + " words of equally many tokens, not " +
                                std::to_string(kLeast));
}

const std::vector<int>& Lexicon::ids_of(const std::string& piece) const {
  const auto found = ids_.find(piece);
  if (found == ids_.end()) throw std::logic_error("configs/tasks.txt has no line '" + piece + "'");
  return found->second;
}

Question ask(const std::string& task, const Lexicon& lexicon, std::span<const int> haystack, int64_t tokens,
             int64_t depth, bool chat, uint64_t key) {
  if (chat && lexicon.ids_of(kEnd).size() > 1)
    throw std::invalid_argument("template chatml: the model's tokenizer has no token " + kEnd);
  const Ids opening = chat ? write(lexicon, {kUser, "\n"}) : Ids();
  Making making{lexicon, tokens - std::ssize(opening), static_cast<double>(depth) / 100.0, chat, key};
  Scene scene = task_named(task).scene(making);
  const auto by_depth = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::stable_sort(scene.needles.begin(), scene.needles.end(), by_depth);
  int64_t rest =
      making.tokens - std::ssize(scene.question) - std::ssize(scene.next) - std::ssize(scene.answer);
  for (const auto& [at, ids] : scene.needles) rest -= std::ssize(ids);
  if (rest < 0)
    throw std::invalid_argument("task \"" + task + "\" needs " + std::to_string(-rest) +
                                " tokens more than the " + std::to_string(tokens) + " there are");
  Question q{.ids = opening};
  int64_t read = 0;
  const auto read_to = [&](int64_t end) {
    q.ids.insert(q.ids.end(), haystack.begin() + read, haystack.begin() + end);
    read = end;
  };
  for (const auto& [at, ids] : scene.needles) {
    read_to(std::llround(std::min(at, 1.0) * static_cast<double>(rest)));
    q.ids.insert(q.ids.end(), ids.begin(), ids.end());
  }
  read_to(rest);
  q.question = std::ssize(q.ids);
  q.ids.insert(q.ids.end(), scene.question.begin(), scene.question.end());
  q.asked = std::ssize(q.ids);
  q.ids.insert(q.ids.end(), scene.next.begin(), scene.next.end());
  q.answer = std::ssize(q.ids);
  q.ids.insert(q.ids.end(), scene.answer.begin(), scene.answer.end());
  return q;
}

}  // namespace kv::experiments
