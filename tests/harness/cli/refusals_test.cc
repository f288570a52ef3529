// Every input of refusals.toml ends with exit code 2 and one line that names what the table asks for.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "harness/cli/command_line.h"
#include "tests/temp.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// <<TEXT*N>> is TEXT so many times.
std::string expanded(const std::string& text) {
  static const std::regex repeated(R"(<<(.+?)\*(\d+)>>)");
  std::string all;
  auto from = text.begin();
  for (std::sregex_iterator at(text.begin(), text.end(), repeated), end; at != end; ++at) {
    all.append(from, (*at)[0].first);
    for (int left = std::stoi((*at)[2]); left > 0; --left) all += (*at)[1];
    from = (*at)[0].second;
  }
  return replaced(all.append(from, text.end()), "{home}", KVLAB_SOURCE_DIR);
}

std::vector<std::string> texts_of(const toml::node& node) {
  std::vector<std::string> texts;
  if (const toml::array* several = node.as_array()) {
    for (const toml::node& text : *several) texts.push_back(text.value<std::string>().value());
  } else {
    texts.push_back(node.value<std::string>().value());
  }
  for (std::string& text : texts) text = expanded(text);
  return texts;
}

// A row's input as a safetensors file: its header, and so many bytes of data.
std::string safetensors(const std::vector<std::string>& input) {
  const uint64_t length = input[0].size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + input[0] + std::string(std::stoul(input[1]), '\0');
}

struct Said {
  int status;
  std::string out, error;
};

std::string read_all(int file) {
  std::string text(static_cast<size_t>(lseek(file, 0, SEEK_END)), '\0');
  EXPECT_EQ(pread(file, text.data(), text.size(), 0), std::ssize(text));
  close(file);
  return text;
}

// A process of its own, since a command sets signals and threads for all of its process; nothing is loaded anew.
Said command_line_in(const fs::path& folder, std::vector<std::string> words) {
  const int out = memfd_create("out", 0), error = memfd_create("error", 0);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(600);  // for hangs alone
    dup2(out, STDOUT_FILENO);
    dup2(error, STDERR_FILENO);
    setenv("KVLAB_HOME", KVLAB_SOURCE_DIR, 1);
    setenv("KVLAB_PYTHON", "", 1);
    if (chdir(folder.c_str()) != 0) _exit(99);
    words.insert(words.begin(), "kvlab");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const int code = cli::command_line(static_cast<int>(words.size()), argv.data());
    std::fflush(nullptr);
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return {.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status),
          .out = read_all(out),
          .error = read_all(error)};
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

// A word of the table stands for itself, not for a part of another: 12 is not in 128.
bool names(const std::string& message, const std::string& word) {
  const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = 0; (at = message.find(word, at)) != std::string::npos; ++at) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || !in_word(word.front()) || !in_word(message[at - 1]),
               ends = end == message.size() || !in_word(word.back()) || !in_word(message[end]);
    if (begins && ends) return true;
  }
  return false;
}

// One line; a spec's mistake has two more, with its place.
void expect_one_line(const std::string& error) {
  std::vector<std::string> lines;
  std::istringstream text(error);
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with("[")) lines.push_back(line);  // progress
  }
  const bool has_place = lines.size() == 3 && lines[1].starts_with("  ") &&
                         lines[2].find_first_not_of(' ') == lines[2].size() - 1 && lines[2].back() == '^';
  EXPECT_TRUE(lines.size() == 1 || has_place) << error;
  EXPECT_TRUE(error.starts_with("kvlab: ") || error.starts_with("[")) << error;
  EXPECT_LT(error.size(), 2500u) << error;
  const auto is_control = [](unsigned char c) { return (c < ' ' && c != '\n') || c == 0x7f; };
  EXPECT_TRUE(std::ranges::none_of(error, is_control) && error.find("\xc2\x9b") == std::string::npos)
      << error;
  for (const char* not_ours : {"internal error", "filesystem error"})
    EXPECT_EQ(error.find(not_ours), std::string::npos) << error;
}

// A table of one kind: its command line, in which {} is the input, or a file that has it.
class Kind {
 public:
  explicit Kind(const toml::table& table)
      : arguments_(texts_of(*table.get("arguments"))),
        file_(table["file"].value_or(std::string())),
        is_safetensors_(table["format"].value_or(std::string()) == "safetensors"),
        begins_(table["begins"].value_or(std::string())),
        ends_(table["ends"].value_or(std::string())),
        writes_(table["writes"].value_or(false)),
        rows_(*table["rows"].as_array()) {
    for (const auto& [key, value] : table) {
      const std::set<std::string> known{"arguments", "file",   "format", "begins",
                                        "ends",      "writes", "with",   "rows"};
      EXPECT_TRUE(known.contains(std::string(key.str()))) << key.str() << " is no key of a kind";
    }
    if (const toml::table* files = table["with"].as_table()) {
      for (const auto& [name, text] : *files) with_.emplace_back(name.str(), texts_of(text).front());
    }
  }

  void try_rows(std::set<std::string>& inputs) const {
    for (const toml::node& row : rows_) {
      const toml::array& fields = *row.as_array();
      const std::vector<std::string> input = texts_of(*fields.get(0));
      std::string joined;
      for (const std::string& word : input) joined += word + " ";
      SCOPED_TRACE(joined.substr(0, 300));
      for (const std::string& word : arguments_) joined += " " + word;
      EXPECT_TRUE(inputs.insert(joined + begins_).second) << "the row is there twice";
      EXPECT_GE(fields.size(), 2u) << "the row asks for nothing";
      try_row(input, fields);
    }
  }

 private:
  void try_row(const std::vector<std::string>& input, const toml::array& fields) const {
    const test::TempFolder folder;
    for (const auto& [name, text] : with_) write(folder / name, text);
    if (!file_.empty())
      write(folder / file_, is_safetensors_ ? safetensors(input) : begins_ + input[0] + ends_);
    std::vector<std::string> words;
    for (const std::string& word : arguments_) {
      if (word == "{}")
        words.insert(words.end(), input.begin(), input.end());
      else
        words.push_back(input.empty() ? word : replaced(word, "{}", input[0]));
    }
    const std::set<std::string> before = names_in(folder.path());
    const Said said = command_line_in(folder.path(), words);
    EXPECT_EQ(said.status, 2) << said.out << said.error;
    EXPECT_EQ(said.out, "");
    expect_one_line(said.error);
    for (size_t i = 1; i < fields.size(); ++i) {
      const std::string word = expanded(fields[i].value<std::string>().value());
      EXPECT_TRUE(names(said.error, word)) << "'" << word << "' is not in: " << said.error;
    }
    EXPECT_TRUE(writes_ || names_in(folder.path()) == before) << "it wrote";
  }

  static void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }

  const std::vector<std::string> arguments_;
  const std::string file_;
  const bool is_safetensors_;
  const std::string begins_, ends_;
  const bool writes_;
  const toml::array& rows_;
  std::vector<std::pair<std::string, std::string>> with_;
};

TEST(Refusals, NameTheValueThePlaceAndTheRightForm) {
  const toml::table table = toml::parse_file(KVLAB_SOURCE_DIR "/tests/harness/refusals.toml");
  std::set<std::string> inputs;
  for (const auto& [name, kind] : table) {
    SCOPED_TRACE("[" + std::string(name.str()) + "]");
    Kind(*kind.as_table()).try_rows(inputs);
  }
  EXPECT_GT(inputs.size(), 200u);
}

TEST(Refusals, AWordIsNoPartOfAnother) {
  EXPECT_TRUE(names("seq_len has 12, twice", "12") && names("a: 'x'", "'x'") && names("of --out", "--out"));
  EXPECT_FALSE(names("seq_len has 128", "12") || names("of a word", "wor") || names("x_seq_len", "seq_len"));
}

}  // namespace
}  // namespace kv
