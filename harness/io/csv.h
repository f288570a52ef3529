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

// Drops a last line without a line feed, which a killed program has cut off. Throws std::invalid_argument for a
// file that cannot be read or is no such table. An empty file has no header.
CsvTable read_csv(const std::filesystem::path& path);

}  // namespace kv::io
