#include "harness/peers/peers.h"

#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>

#include "harness/io/paths.h"
#include "harness/peers/process.h"

namespace kv::peers {
namespace {

// The inline script metadata at the top of a file, without comment marks.
std::string head_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line, head;
  while (std::getline(file, line) && line != "# /// script") continue;
  while (std::getline(file, line) && line != "# ///")
    head += line.substr(std::min<size_t>(2, line.size())) + "\n";
  return head;
}

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw std::invalid_argument(path.string() + ": " + what +
                              "; a format is as f32 = { stored = \"f32\", tolerance = 1e-5 }");
}

// Reads formats in the file's order, which TOML's tables lose.
void read_formats(const std::filesystem::path& path, const std::string& head, std::vector<Format>& all) {
  try {
    const toml::table root = toml::parse(head);
    const toml::table* formats = root.at_path("tool.kvlab.formats").as_table();
    if (!formats) return;
    std::vector<const toml::key*> keys;
    for (const auto& [key, value] : *formats) keys.push_back(&key);
    std::ranges::sort(keys, {}, [](const toml::key* key) { return key->source().begin.line; });
    for (const toml::key* key : keys) {
      const auto value = formats->at_path(key->str());
      const auto stored = value["stored"].value<std::string>();
      const auto tolerance = value["tolerance"].value<double>();
      if (!stored || !tolerance) refuse(path, "'" + std::string(key->str()) + "' lacks stored or tolerance");
      all.push_back({.peer = path.stem(),
                     .name = std::string(key->str()),
                     .stored = *stored,
                     .versus = value["versus"].value_or(*stored),
                     .tolerance = *tolerance});
    }
  } catch (const toml::parse_error& e) {
    refuse(path, std::string(e.description()));
  }
}

}  // namespace

std::vector<Format> formats() {
  std::vector<std::filesystem::path> files;
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator(io::project_home() / "harness" / "peers", ignored)) {
    if (entry.path().extension() == ".py") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  std::vector<Format> all;
  for (const std::filesystem::path& file : files) read_formats(file, head_of(file), all);
  return all;
}

Format format_named(std::string_view text) {
  for (Format& format : formats()) {
    if (format.text() == text) return std::move(format);
  }
  throw std::out_of_range("no peer '" + std::string(text) + "'");
}

std::string why_absent(const std::string& peer) {
  static std::map<std::string, bool> installed;  // checked once a run
  const auto [found, is_new] = installed.emplace(peer, false);
  if (is_new) found->second = is_installed(peer);
  return found->second ? "" : "install it with: ./kvlab peers install " + peer;
}

}  // namespace kv::peers
