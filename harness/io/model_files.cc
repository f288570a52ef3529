#include "harness/io/model_files.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <set>

#include "harness/io/json.h"
#include "harness/io/mapped_file.h"
#include "harness/io/paths.h"
#include "harness/io/python.h"
#include "harness/io/text.h"

namespace kv::io {
namespace {

constexpr const char* kMakeNothing = "KVLAB_MAKE_NOTHING";  // model_files.py reads it, too

// Returns the output of harness/model/model_files.py.
std::string said_by_python(const std::vector<std::string>& arguments, const std::string& of) {
  const bool makes = !std::getenv(kMakeNothing);
  const NotHere not_here("'" + of + "', to convert once into .models");
  if (project_python().empty()) {
    if (!makes) throw not_here;
    throw std::invalid_argument("'" + of + "' needs the Python environment .venv in " +
                                project_home().string() + ", which ./kvlab makes");
  }
  std::string output;
  const int code = run_python("harness/model/model_files.py", arguments, &output);
  while (!output.empty() && output.back() == '\n') output.pop_back();
  constexpr int kNotMade = 3;
  if (code == kNotMade && !makes) throw not_here;
  if (code == 2) throw std::invalid_argument(output);
  if (code != 0) throw std::runtime_error(project_python() + " failed on '" + of + "'");
  return output;
}

std::filesystem::path made_by_python(const std::vector<std::string>& arguments) {
  return said_by_python(arguments, arguments.size() > 1 ? arguments.back() : "the text");
}

nlohmann::json packages() {
  const std::filesystem::path file = project_home() / "harness" / "model" / "model_packages.json";
  return std::filesystem::exists(file) ? parse_json(read_text(file), file) : nlohmann::json::object();
}

std::set<std::string> package_names() {
  std::set<std::string> names;
  const nlohmann::json all = packages();
  for (const auto& [name, package] : all.items()) names.insert(name);
  return names;
}

// Throws NotHere for a package's model that is to be downloaded.
void require_here(const std::string& model) {
  const nlohmann::json all = packages();
  const auto found = all.find(model);
  if (found == all.end()) return;
  if (std::filesystem::exists(project_home() / ".models" / model / found->at("file").get<std::string>()))
    return;
  throw NotHere("model '" + model + "', " +
                std::to_string((found->at("download").get<int64_t>() + 500000) / 1000000) +
                " MB to download, licence " + found->at("licence").get<std::string>());
}

}  // namespace

void make_nothing() { setenv(kMakeNothing, "yes", 1); }

bool is_gguf(const std::string& path) { return std::filesystem::path(path).extension() == ".gguf"; }

std::filesystem::path find_model(const std::string& path) {
  return find_place(path, "model", package_names());
}

std::filesystem::path model_to_read(const std::string& path) {
  const std::filesystem::path place = find_model(path);
  if (std::getenv(kMakeNothing)) require_here(place);
  return is_gguf(place) || !std::filesystem::exists(place) ? made_by_python({"folder", place}) : place;
}

std::filesystem::path config_of_gguf(const std::string& path) { return made_by_python({"config", path}); }

std::filesystem::path text_to_read(const std::string& text) {
  return text.empty() ? made_by_python({"text"}) : find_input(text, "text");
}

std::filesystem::path tokens_of_text(const std::string& tokenizer, const std::string& text) {
  return made_by_python({"tokens", tokenizer, text});
}

std::vector<int> ids_of_text(const std::string& tokenizer, const std::string& text) {
  return nlohmann::json::parse(said_by_python({"ids", tokenizer, text}, tokenizer)).get<std::vector<int>>();
}

std::vector<TextOfTokens> texts_of_tokens(const std::string& tokenizer, std::span<const int> ids,
                                          int64_t length, int64_t prompt) {
  const int file = memfd_create("ids", 0);  // which Python reads by its number
  const std::span<const std::byte> bytes = std::as_bytes(ids);
  if (file < 0 || write(file, bytes.data(), bytes.size()) != std::ssize(bytes))
    throw std::runtime_error("cannot hand " + std::to_string(bytes.size()) + " bytes of ids to Python");
  const std::string path = "/dev/fd/" + std::to_string(file);
  const auto close_file = [&](const void*) { close(file); };
  const std::unique_ptr<const void, decltype(close_file)> closes(&file, close_file);
  const auto all = nlohmann::json::parse(
      said_by_python({"texts", tokenizer, path, std::to_string(length), std::to_string(prompt)}, tokenizer));
  std::vector<TextOfTokens> texts;
  for (const auto& [begins, rest] : all.get<std::vector<std::pair<std::string, std::string>>>())
    texts.push_back({printable(begins), printable(rest)});
  return texts;
}

}  // namespace kv::io
