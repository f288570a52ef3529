// CSV files as RFC 4180 has them: lines of fields, quoted where they must be.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace kv::io {

using CsvRecord = std::vector<std::string>;

struct CsvTable {
  CsvRecord header;
  std::vector<CsvRecord> records;  // each of as many fields as the header
};

// With its line feed.
std::string csv_line(const CsvRecord& fields);

// A last line without a line feed was cut off by a killed program, and is dropped. Throws std::invalid_argument for a file that cannot be read and for what is no such table. An empty file has no
// header.
CsvTable read_csv(const std::filesystem::path& path);

}  // namespace kv::io
