#include "harness/io/text_table.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>

namespace kv::io {
namespace {

using Strings = std::vector<std::string>;

// --- Terminal

// Longer lines of text are hard to read, whatever the terminal.
constexpr size_t kWidestText = 100;

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

bool is_number(const std::string& label) {
  return label.find_first_not_of("0123456789") == std::string::npos;
}

size_t widest_in(const std::vector<Strings>& lines, size_t column) {
  size_t widest = 0;
  for (const Strings& line : lines) widest = std::max(widest, text_width(line[column]));
  return widest;
}

// A table's lines as a terminal shows them: those of the heads, then rows. The first column has the labels.
struct Lines {
  std::vector<Strings> all;
  size_t heads = 0;

  Lines(const TextTable& table, size_t head_width) {
    std::vector<Strings> parts;  // [column][line]
    for (const Strings& head : table.heads) {
      parts.emplace_back();
      for (const std::string& line : head)
        for (const std::string& part : broken(line, head_width)) parts.back().push_back(part);
      heads = std::max(heads, parts.back().size());
    }
    all.assign(heads, Strings(1 + parts.size()));
    all.back().front() = table.corner;
    for (size_t c = 0; c < parts.size(); ++c)
      for (size_t i = 0; i < parts[c].size(); ++i) all[i][1 + c] = parts[c][i];
    for (const auto& row : table.rows) {
      all.push_back({row.label});
      for (size_t c = 0; c < parts.size(); ++c)
        all.back().push_back(row.fields[c].text + padded_mark(table, row, c));
    }
    const size_t width = widest_in(all, 0);
    for (size_t i = heads; i < all.size(); ++i)
      if (std::string& label = all[i][0]; is_number(label)) label.insert(0, width - label.size(), ' ');
  }

  static std::string padded_mark(const TextTable& table, const TextTable::Row& row, size_t column) {
    size_t width = 0;
    for (const auto& other : table.rows) width = std::max(width, other.fields[column].mark.size());
    std::string mark = row.fields[column].mark;
    mark.resize(width, ' ');
    return mark;
  }
  // The number of columns from `first` on that fit beside the labels, at least one, and the width of them all.
  std::pair<size_t, size_t> fitting(size_t first, size_t most) const {
    size_t end = first, width = widest_in(all, 0);
    for (; end < all.front().size(); ++end) {
      const size_t more = 2 + widest_in(all, end);
      if (end > first && width + more > most) break;
      width += more;
    }
    return {end, width};
  }
};

std::string panel(const Lines& lines, size_t first, size_t end, size_t width) {
  std::vector<Strings> shown;
  for (const Strings& line : lines.all) {
    shown.push_back({line.front()});
    shown.back().insert(shown.back().end(), line.begin() + static_cast<std::ptrdiff_t>(first),
                        line.begin() + static_cast<std::ptrdiff_t>(end));
  }
  std::string text = aligned_text(shown, 1, "");
  size_t rule = 0;
  for (size_t i = 0; i < lines.heads; ++i) rule = text.find('\n', rule) + 1;
  return text.insert(rule, std::string(width, '-') + "\n");
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

size_t text_width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string aligned_text(const std::vector<std::vector<std::string>>& rows, size_t left_columns,
                         const std::string& indent) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], text_width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string gap(widths[i] - text_width(row[i]), ' ');
      line += (i == 0 ? indent : "  ") + (i < left_columns ? row[i] + gap : gap + row[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string wrapped(const std::string& text, size_t width, size_t indent) {
  std::istringstream words(text);
  std::string lines, line;
  for (std::string word; words >> word;) {
    if (!line.empty() && text_width(line) + 1 + text_width(word) > width) {
      lines += line + "\n";
      line = std::string(indent, ' ') + word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
  }
  return lines + line + "\n";
}

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
  Lines lines(table, kWideHeads);
  if (lines.fitting(1, width).first < lines.all.front().size()) lines = Lines(table, kNarrowHeads);
  for (size_t first = 1; first < lines.all.front().size();) {
    const auto [end, panel_width] = lines.fitting(first, width);
    text += "\n" + panel(lines, first, end, panel_width);
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
