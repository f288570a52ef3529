// Rows of text as aligned columns, and a table of numbers with footnotes, and how it looks in a terminal, in Markdown and in LaTeX.
#pragma once

#include <string>
#include <vector>

namespace kv::io {

// Counts code points, so that an en dash counts once.
size_t text_width(const std::string& text);

// Columns as wide as they need, the first `left_columns` left-aligned, after an indent; the first row is the head.
std::string aligned_text(const std::vector<std::vector<std::string>>& rows, size_t left_columns = 1,
                         const std::string& indent = "  ");

// Words in lines of at most `width` characters, all but the first indented.
std::string wrapped(const std::string& text, size_t width, size_t indent = 2);

struct TextTable {
  struct Field {
    std::string text;
    std::string mark = {};  // the footnote's: "*" or "[1]"
  };
  struct Row {
    std::string label;
    std::vector<Field> fields;
  };
  struct Note {
    std::string mark;  // may be empty: about the table as a whole
    std::string text;
  };

  std::string title;
  std::string facts;                            // a sentence or two
  std::string corner;                           // heads the labels
  std::vector<std::vector<std::string>> heads;  // one a column, each in lines
  std::vector<Row> rows;
  std::vector<Note> notes;

  // The mark "[n]" of a footnote with this text, which is added unless it is there already.
  std::string footnote(const std::string& text);
};

// `width` in characters: columns that do not fit go to a second table below, with the labels again.
std::string terminal_text(const TextTable& table, size_t width);
std::string markdown_text(const TextTable& table);
// A table environment; needs the package booktabs.
std::string latex_text(const TextTable& table);

}  // namespace kv::io
