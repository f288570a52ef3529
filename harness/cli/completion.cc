#include "harness/cli/completion.h"

#include <CLI/CLI.hpp>
#include <sstream>
#include <vector>

namespace kv::cli {
namespace {

struct Choice {
  std::string name;  // "--out"; empty for a positional argument
  std::string help;
  bool takes_value;
  std::string values;  // separated by spaces; empty: any text
};

struct Command {
  std::string name, help;
  std::vector<Choice> choices;
};

// A validator of fixed values describes itself as "{binary,decimal}".
std::string values_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.find('}', open);
  if (open == std::string::npos || close == std::string::npos) return "";
  std::string values = type.substr(open + 1, close - open - 1);
  for (char& c : values) c = c == ',' ? ' ' : c;
  return values;
}

std::vector<Command> commands_of(const CLI::App& app) {
  std::vector<Command> commands;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    Command& command = commands.emplace_back(Command{sub->get_name(), sub->get_description(), {}});
    for (const CLI::Option* option : sub->get_options()) {
      const bool named = !option->get_lnames().empty();
      command.choices.push_back({named ? "--" + option->get_lnames().front() : "", option->get_description(),
                                 option->get_items_expected_max() > 0, values_of(*option)});
    }
  }
  return commands;
}

// In single quotes, for sh and zsh.
std::string sh_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

// fish treats a backslash in single quotes as an escape.
std::string fish_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += (c == '\'' || c == '\\') ? std::string{'\\', c} : std::string(1, c);
  return out + "'";
}

std::string names_of(const std::vector<Choice>& choices) {
  std::string names;
  for (const Choice& choice : choices) {
    if (!choice.name.empty()) names += (names.empty() ? "" : " ") + choice.name;
  }
  return names;
}

// Words that may stand in place of an option: the values of positional arguments.
std::string arguments_of(const std::vector<Choice>& choices) {
  std::string values;
  for (const Choice& choice : choices) {
    if (choice.name.empty()) values += choice.values;
  }
  return values;
}

std::string bash_script(const std::vector<Command>& commands) {
  std::ostringstream out;
  out << "# bash completion of kvlab: source <(./kvlab completion bash)\n"
         "_kvlab() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words= options= values=\n"
         "  case $command in\n";
  std::string all;
  for (const Command& command : commands) {
    all += (all.empty() ? "" : " ") + command.name;
    out << "    " << command.name << ") options=" << sh_quoted(names_of(command.choices))
        << " words=" << sh_quoted(arguments_of(command.choices)) << " ;;\n";
  }
  out << "  esac\n"
         "  case \"$command ${COMP_WORDS[COMP_CWORD-1]}\" in\n";
  for (const Command& command : commands) {
    for (const Choice& choice : command.choices) {
      if (!choice.name.empty() && !choice.values.empty())
        out << "    " << sh_quoted(command.name + " " + choice.name)
            << ") values=" << sh_quoted(choice.values) << " ;;\n";
    }
  }
  out << "  esac\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then words="
      << sh_quoted(all)
      << "\n"
         "  elif [ -n \"$values\" ]; then words=$values\n"
         "  elif [ \"${word#-}\" != \"$word\" ]; then words=$options\n"
         "  fi\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
         "}\n"
         "complete -o default -F _kvlab kvlab ./kvlab\n";
  return out.str();
}

std::string zsh_script(const std::vector<Command>& commands) {
  std::ostringstream out;
  out << "#compdef kvlab\n"
         "# zsh completion of kvlab: source <(./kvlab completion zsh)\n"
         "_kvlab() {\n"
         "  local -a commands options\n"
         "  commands=(\n";
  for (const Command& command : commands)
    out << "    " << sh_quoted(command.name + ":" + command.help) << "\n";
  out << "  )\n"
         "  if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
         "  case \"$words[2] $words[CURRENT-1]\" in\n";
  for (const Command& command : commands) {
    for (const Choice& choice : command.choices) {
      if (!choice.name.empty() && !choice.values.empty())
        out << "    " << sh_quoted(command.name + " " + choice.name) << ") compadd " << choice.values
            << "; return ;;\n";
    }
  }
  out << "  esac\n"
         "  case $words[2] in\n";
  for (const Command& command : commands) {
    out << "    " << command.name << ")\n";
    if (const std::string values = arguments_of(command.choices); !values.empty())
      out << "      compadd " << values << "\n";
    out << "      options=(\n";
    for (const Choice& choice : command.choices) {
      if (!choice.name.empty()) out << "        " << sh_quoted(choice.name + ":" + choice.help) << "\n";
    }
    out << "      ) ;;\n";
  }
  out << "  esac\n"
         "  if [[ $words[CURRENT] == -* ]]; then _describe option options; else _files; fi\n"
         "}\n"
         "compdef _kvlab kvlab ./kvlab\n";
  return out.str();
}

std::string fish_script(const std::vector<Command>& commands) {
  std::ostringstream out;
  out << "# fish completion of kvlab: ./kvlab completion fish | source\n";
  for (const Command& command : commands) {
    out << "complete -c kvlab -n __fish_use_subcommand -f -a " << command.name << " -d "
        << fish_quoted(command.help) << "\n";
    const std::string here = " -n '__fish_seen_subcommand_from " + command.name + "'";
    for (const Choice& choice : command.choices) {
      if (choice.name.empty() && choice.values.empty()) continue;
      out << "complete -c kvlab" << here;
      if (!choice.name.empty()) out << " -l " << choice.name.substr(2) << (choice.takes_value ? " -r" : "");
      if (!choice.values.empty()) out << " -f -a " << fish_quoted(choice.values);
      out << " -d " << fish_quoted(choice.help) << "\n";
    }
  }
  return out.str();
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell) {
  const std::vector<Command> commands = commands_of(app);
  if (shell == "zsh") return zsh_script(commands);
  return shell == "fish" ? fish_script(commands) : bash_script(commands);
}

}  // namespace kv::cli
