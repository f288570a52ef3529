// Destination and format of a command's tables.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "harness/io/bytes.h"
#include "harness/io/text_table.h"
#include "harness/results/csv.h"

namespace kv::cli {

struct TableOutput {
  std::string units = "binary";  // or decimal
  std::string format;            // terminal, csv, markdown or latex; empty: from the name of `out`
  std::string out;               // a new file; empty: standard output

  io::Units shown_units() const { return units == "decimal" ? io::Units::kDecimal : io::Units::kBinary; }
  std::string chosen_format() const;
  // A text table in the chosen format, except CSV.
  std::string shown(const io::TextTable& table) const;
  // Throws std::invalid_argument if `out` exists.
  void refuse_existing() const;
  // Writes the file, if requested. Returns the text to print.
  std::string deliver(const std::string& text) const;
};

// "16GB (14.9 GiB)": the original text, and the bytes in the tables' units if these differ.
std::string with_units(const std::string& text, int64_t bytes, io::Units units);

// Consecutive tables in the requested format. CSV has a single table.
template <class Row>
class Document {
 public:
  Document(const TableOutput& output, const results::Schema<Row>& schema)
      : output_(output), schema_(schema) {}

  template <class Table>
  void add(const Table& table) {
    if (is_csv()) {
      for (Row& row : results_of(table)) rows_.push_back(std::move(row));
      return;
    }
    if (!text_.empty()) text_ += "\n";
    text_ += output_.shown(text_table(table, output_.shown_units()));
  }
  std::string text() const { return is_csv() ? results::csv_text(schema_, rows_) : text_; }

 private:
  bool is_csv() const { return output_.chosen_format() == "csv"; }

  const TableOutput& output_;
  const results::Schema<Row>& schema_;
  std::vector<Row> rows_;
  std::string text_;
};

}  // namespace kv::cli
