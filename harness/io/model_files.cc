#include "harness/io/model_files.h"

#include <set>
#include <stdexcept>
#include <vector>

#include "harness/io/json.h"
#include "harness/io/mapped_file.h"
#include "harness/io/paths.h"
#include "harness/io/python.h"

namespace kv::io {
namespace {

// The path that harness/model/model_files.py prints.
std::filesystem::path made_by_python(const std::vector<std::string>& arguments) {
  if (project_python().empty()) {
    throw std::invalid_argument("'" + arguments.back() + "' needs the Python environment .venv in " +
                                project_home().string() + ", which ./kvlab makes");
  }
  std::string output;
  const int code = run_python("harness/model/model_files.py", arguments, &output);
  while (!output.empty() && output.back() == '\n') output.pop_back();
  if (code == 2) throw std::invalid_argument(output);
  if (code != 0) throw std::runtime_error(project_python() + " failed on '" + arguments.back() + "'");
  return output;
}

std::set<std::string> package_names() {
  const std::filesystem::path file = project_home() / "harness" / "model" / "model_packages.json";
  std::set<std::string> names;
  if (std::filesystem::exists(file)) {
    const nlohmann::json packages = parse_json(read_text(file), file);
    for (const auto& [name, package] : packages.items()) names.insert(name);
  }
  return names;
}

}  // namespace

bool is_gguf(const std::string& path) { return std::filesystem::path(path).extension() == ".gguf"; }

std::filesystem::path find_model(const std::string& path) {
  return find_place(path, "model", package_names());
}

std::filesystem::path model_to_read(const std::string& path) {
  const std::filesystem::path place = find_model(path);
  return is_gguf(place) || !std::filesystem::exists(place) ? made_by_python({"folder", place}) : place;
}

std::filesystem::path config_of_gguf(const std::string& path) { return made_by_python({"config", path}); }

std::filesystem::path text_to_read(const std::string& text) {
  return text.empty() ? made_by_python({"text"}) : find_input(text, "text");
}

std::filesystem::path tokens_of_text(const std::string& tokenizer, const std::string& text) {
  return made_by_python({"tokens", tokenizer, text});
}

}  // namespace kv::io
