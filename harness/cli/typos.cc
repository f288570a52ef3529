#include "harness/cli/typos.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "harness/io/bytes.h"
#include "harness/io/suggestion.h"
#include "harness/io/text.h"

namespace kv::cli {
namespace {

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::string unexpected(const CLI::App& command, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  if (!name.starts_with("-")) return command.get_name() + " takes no argument '" + argument + "'";
  std::vector<std::string> options;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& known : option->get_lnames()) options.push_back("--" + known);
  }
  return command.get_name() + " has no option '" + name + "'" + io::did_you_mean(name, options);
}

}  // namespace

CLI::Validator one_of(std::vector<std::string> values) {
  const std::string all = io::joined(values, ",");
  return CLI::Validator(
      [values = std::move(values)](std::string& text) -> std::string {
        if (std::count(values.begin(), values.end(), text) > 0) return "";
        return "'" + text + "' is unknown" + io::known_names(text, values);
      },
      "{" + all + "}");
}

CLI::Validator token_count() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        const std::optional<int64_t> count = io::parse_token_count(text);
        if (!count) return "'" + text + "' is not a number of tokens; write 131072 or 128K";
        text = std::to_string(*count);
        return "";
      },
      "TOKENS");
}

void refuse_unknown_command(const CLI::App& app, int argc, const char* const* argv) {
  if (argc < 2 || argv[1][0] == '-' || argv[1][0] == '\0') return;
  const std::string name = argv[1];
  const std::vector<std::string> known = command_names(app);
  if (std::count(known.begin(), known.end(), name) > 0) return;
  throw CLI::ExtrasError("there is no command '" + name + "'" + io::did_you_mean(name, known),
                         CLI::ExitCodes::ExtrasError);
}

std::string mistake_in(const CLI::App& app, const CLI::Error& error) {
  const std::vector<std::string> rest = app.remaining(true);
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const bool extras = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
  if (!extras || rest.empty() || chosen.empty()) return error.what();
  // The value of an unknown option is also unexpected.
  const auto option =
      std::find_if(rest.begin(), rest.end(), [](const std::string& a) { return a.starts_with("-"); });
  return unexpected(*chosen.front(), option == rest.end() ? rest.front() : *option);
}

}  // namespace kv::cli
