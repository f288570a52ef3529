// The destination and format of a command's tables.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

#include "harness/io/bytes.h"
#include "harness/io/text_table.h"
#include "harness/results/table.h"

namespace CLI {
class App;
}

namespace kv::cli {

// Its width in columns; unlimited if standard output is no terminal. $COLUMNS takes precedence.
size_t terminal_width();

struct TableOutput {
  std::string units = "binary";  // or decimal
  std::string format;            // terminal, csv, json, markdown or latex; empty: from the name of `out`
  std::string out;               // a new file; empty: standard output

  io::Units shown_units() const { return units == "decimal" ? io::Units::kDecimal : io::Units::kBinary; }
  std::string chosen_format() const;
  // The table in the chosen format, which is neither csv nor json.
  std::string shown(const io::TextTable& table) const;
  // Throws std::invalid_argument if `out` exists.
  void refuse_existing() const;
  // Writes `out`, if it is set. Returns the text to print.
  std::string deliver(const std::string& text) const;
};

void add_output_options(CLI::App& app, TableOutput& output);
// For a command that reads a model's config.json.
void add_trust_option(CLI::App& app, bool& trust_config);

// "16GB (14.9 GiB)": the user's text, and the tables' unit in brackets if it differs.
std::string with_units(const std::string& text, int64_t bytes, io::Units units);

// Tables one after the other in the chosen format. In CSV and JSON they are one table.
class Document {
 public:
  Document(const TableOutput& output, const results::Table& columns) : output_(output), columns_(columns) {}

  // results_of(table) gives the rows for CSV and JSON, text_table(table, units) the table for the other formats.
  template <class Table>
  void add(const Table& table) {
    if (is_data()) {
      std::ranges::move(results_of(table), std::back_inserter(rows_));
      return;
    }
    if (!text_.empty()) text_ += "\n";
    text_ += output_.shown(text_table(table, output_.shown_units()));
  }
  std::string text() const {
    if (!is_data()) return text_;
    return output_.chosen_format() == "csv" ? results::csv_text(columns_, rows_)
                                            : results::json_text(columns_, rows_);
  }

 private:
  bool is_data() const { return output_.chosen_format() == "csv" || output_.chosen_format() == "json"; }

  const TableOutput& output_;
  const results::Table& columns_;
  std::vector<results::Row> rows_;
  std::string text_;
};

}  // namespace kv::cli
