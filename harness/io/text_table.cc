#include "harness/io/text_table.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>
#include <utility>

namespace kv::io {
namespace {

using Strings = std::vector<std::string>;

// --- Terminal

constexpr size_t kGap = 2;
// Longer lines of text are hard to read, whatever the terminal.
constexpr size_t kWidestText = 100;

std::string right(const std::string& text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}
std::string left(const std::string& text, size_t width) {
  return text + std::string(width - std::min(width, text.size()), ' ');
}

// Words in lines of at most `width`, all but the first indented.
std::string wrapped(const std::string& text, size_t width, size_t indent) {
  std::istringstream words(text);
  std::string lines, line;
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      lines += line + "\n";
      line = std::string(indent, ' ') + word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
  }
  return lines + line + "\n";
}

// "ring(window=1020,sinks=4)" breaks behind '(' and ','.
Strings broken(const std::string& text, size_t width) {
  Strings lines{""};
  std::string piece;
  for (size_t i = 0; i < text.size(); ++i) {
    piece += text[i];
    if (text[i] != '(' && text[i] != ',' && i + 1 < text.size()) continue;
    if (!lines.back().empty() && lines.back().size() + piece.size() > width) lines.emplace_back();
    lines.back() += piece;
    piece.clear();
  }
  return lines;
}

// The columns as a terminal shows them.
struct Layout {
  std::vector<Strings> heads;       // [column][line], all of the same number of lines
  std::vector<size_t> widths;       // [column]
  std::vector<size_t> mark_widths;  // [column]
  size_t label_width;

  Layout(const TextTable& table, size_t head_width) : label_width(table.corner.size()) {
    for (const Strings& head : table.heads) {
      heads.emplace_back();
      for (const std::string& line : head) {
        for (const std::string& part : broken(line, head_width)) heads.back().push_back(part);
      }
    }
    size_t lines = 0;
    for (const Strings& head : heads) lines = std::max(lines, head.size());
    for (Strings& head : heads) head.resize(lines);
    for (const auto& row : table.rows) label_width = std::max(label_width, row.label.size());
    for (size_t c = 0; c < heads.size(); ++c) mark_widths.push_back(mark_width(table, c));
    for (size_t c = 0; c < heads.size(); ++c) widths.push_back(column_width(table, c));
  }

  static size_t mark_width(const TextTable& table, size_t column) {
    size_t width = 0;
    for (const auto& row : table.rows) width = std::max(width, row.fields[column].mark.size());
    return width;
  }
  size_t column_width(const TextTable& table, size_t column) const {
    size_t width = 0;
    for (const std::string& line : heads[column]) width = std::max(width, line.size());
    for (const auto& row : table.rows)
      width = std::max(width, row.fields[column].text.size() + mark_widths[column]);
    return width;
  }
  size_t width() const {
    size_t sum = label_width;
    for (const size_t w : widths) sum += kGap + w;
    return sum;
  }
  // Columns [first, this) fit beside the labels: at least one.
  size_t panel_end(size_t first, size_t width) const {
    size_t sum = label_width, end = first;
    while (end < widths.size() && (end == first || sum + kGap + widths[end] <= width))
      sum += kGap + widths[end++];
    return end;
  }
};

bool is_number(const std::string& label) {
  return label.find_first_not_of("0123456789") == std::string::npos;
}

std::string without_trailing_spaces(const std::string& line) {
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

std::string panel(const TextTable& table, const Layout& layout, size_t first, size_t end) {
  std::string text;
  const size_t lines = layout.heads.front().size();
  size_t width = layout.label_width;
  for (size_t i = 0; i < lines; ++i) {
    std::string line = left(i + 1 == lines ? table.corner : "", layout.label_width);
    for (size_t c = first; c < end; ++c)
      line += std::string(kGap, ' ') + right(layout.heads[c][i], layout.widths[c]);
    width = std::max(width, line.size());
    text += without_trailing_spaces(line);
  }
  text += std::string(width, '-') + "\n";
  for (const auto& row : table.rows) {
    std::string line =
        is_number(row.label) ? right(row.label, layout.label_width) : left(row.label, layout.label_width);
    for (size_t c = first; c < end; ++c) {
      const auto& field = row.fields[c];
      line += std::string(kGap, ' ') +
              right(field.text + left(field.mark, layout.mark_widths[c]), layout.widths[c]);
    }
    text += without_trailing_spaces(line);
  }
  return text;
}

// --- Markdown and LaTeX

std::string replaced(std::string_view text, const std::vector<std::pair<char, std::string_view>>& escapes) {
  std::string out;
  for (const char c : text) {
    const auto found =
        std::find_if(escapes.begin(), escapes.end(), [&](const auto& escape) { return escape.first == c; });
    if (found == escapes.end()) {
      out += c;
    } else {
      out += found->second;
    }
  }
  return out;
}

std::string markdown(std::string_view text) {
  return replaced(text, {{'|', "\\|"}, {'*', "\\*"}, {'_', "\\_"}, {'<', "\\<"}});
}

std::string latex(std::string_view text) {
  std::string out = replaced(text, {{'\\', "\\textbackslash{}"},
                                    {'{', "\\{"},
                                    {'}', "\\}"},
                                    {'&', "\\&"},
                                    {'%', "\\%"},
                                    {'$', "\\$"},
                                    {'#', "\\#"},
                                    {'_', "\\_"},
                                    {'~', "\\textasciitilde{}"},
                                    {'^', "\\textasciicircum{}"}});
  // Two hyphens would become a dash.
  for (size_t at = 0; (at = out.find("--", at)) != std::string::npos;) out.replace(at, 2, "-{}-");
  return out;
}

// A number is not parted from its unit.
std::string latex_field(const TextTable::Field& field) {
  std::string text = latex(field.text);
  if (const size_t space = text.find(' '); space != std::string::npos) text.replace(space, 1, "\\,");
  return text + (field.mark.empty() ? "" : "\\textsuperscript{" + latex(field.mark) + "}");
}

std::string joined_markdown(const Strings& lines) {
  std::string text;
  for (const std::string& line : lines) {
    if (!line.empty()) text += (text.empty() ? "" : "<br>") + markdown(line);
  }
  return text;
}

}  // namespace

std::string TextTable::footnote(const std::string& text) {
  size_t number = 1;
  for (const Note& note : notes) {
    if (note.mark.empty() || note.mark.front() != '[') continue;
    if (note.text == text) return note.mark;
    ++number;
  }
  notes.push_back({"[" + std::to_string(number) + "]", text});
  return notes.back().mark;
}

std::string terminal_text(const TextTable& table, size_t width) {
  constexpr size_t kWideHeads = 16, kNarrowHeads = 10;
  const size_t text_width = std::min(width, kWidestText);
  std::string text = wrapped(table.title, text_width, 0);
  if (!table.facts.empty()) text += wrapped(table.facts, text_width, 0);
  Layout layout(table, kWideHeads);
  if (layout.width() > width) layout = Layout(table, kNarrowHeads);
  for (size_t first = 0; first < layout.widths.size();) {
    const size_t end = layout.panel_end(first, width);
    text += "\n" + panel(table, layout, first, end);
    first = end;
  }
  text += "\n";
  for (const auto& note : table.notes) {
    const std::string mark = note.mark.empty() ? "" : note.mark + " ";
    text += wrapped(mark + note.text, text_width, mark.size());
  }
  return text;
}

std::string markdown_text(const TextTable& table) {
  std::string text = "**" + markdown(table.title) + "**\n\n";
  if (!table.facts.empty()) text += markdown(table.facts) + "\n\n";
  text += "| " + markdown(table.corner) + " |";
  std::string rule = "\n|---|";
  for (const Strings& head : table.heads) {
    text += " " + joined_markdown(head) + " |";
    rule += "---:|";
  }
  text += rule + "\n";
  for (const auto& row : table.rows) {
    text += "| " + markdown(row.label) + " |";
    for (const auto& field : row.fields) text += " " + markdown(field.text + field.mark) + " |";
    text += "\n";
  }
  text += "\n";
  for (const auto& note : table.notes)
    text += "- " + markdown(note.mark + (note.mark.empty() ? "" : " ") + note.text) + "\n";
  return text;
}

std::string latex_text(const TextTable& table) {
  const bool numbers =
      std::all_of(table.rows.begin(), table.rows.end(), [](const auto& row) { return is_number(row.label); });
  const std::string columns = (numbers ? "r" : "l") + std::string(table.heads.size(), 'r');
  std::string text = "% \\usepackage{booktabs}\n\\begin{table}\n\\centering\n\\caption{" +
                     latex(table.title) + ". " + latex(table.facts) + "}\n\\begin{tabular}{" + columns +
                     "}\n\\toprule\n";
  size_t lines = 0;
  for (const Strings& head : table.heads) lines = std::max(lines, head.size());
  for (size_t i = 0; i < lines; ++i) {
    text += i + 1 == lines ? latex(table.corner) : "";
    for (const Strings& head : table.heads)
      text += i < head.size() && !head[i].empty() ? " & " + latex(head[i]) : " &";
    text += " \\\\\n";
  }
  text += "\\midrule\n";
  for (const auto& row : table.rows) {
    text += latex(row.label);
    for (const auto& field : row.fields) text += " & " + latex_field(field);
    text += " \\\\\n";
  }
  text += "\\bottomrule\n\\end{tabular}\n\n\\smallskip\n\\begin{minipage}{\\linewidth}\\footnotesize\n";
  for (const auto& note : table.notes) {
    text +=
        (note.mark.empty() ? "" : "\\textsuperscript{" + latex(note.mark) + "} ") + latex(note.text) + "\n\n";
  }
  return text + "\\end{minipage}\n\\end{table}\n";
}

}  // namespace kv::io
