#include "harness/io/csv.h"

#include <csv.h>

#include <stdexcept>

#include "harness/io/mapped_file.h"
#include "harness/io/text.h"

namespace kv::io {
namespace {

// The whole lines of a file, without blank ones at its end.
std::string lines_of(const std::filesystem::path& path) {
  std::string lines = without_byte_order_mark(read_text(path.string()));
  lines.erase(lines.rfind('\n') + 1);  // npos + 1 is 0
  lines.erase(lines.find_last_not_of(" \t\r\n") + 1);
  return lines.empty() ? lines : lines + "\n";
}

// libcsv takes spaces around a field for none of it unless they are quoted.
bool needs_quotes(const std::string& field) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  return field.find_first_of(",\"\r\n") != std::string::npos ||
         (!field.empty() && (is_space(field.front()) || is_space(field.back())));
}

std::vector<CsvRecord> parse_records(const std::filesystem::path& path) {
  const std::string text = lines_of(path);
  struct Parse {
    std::vector<CsvRecord> records;
    CsvRecord record;
  } parse;
  csv_parser parser;
  csv_init(&parser, CSV_STRICT);
  const auto field = [](void* value, size_t n, void* p) {
    static_cast<Parse*>(p)->record.emplace_back(static_cast<const char*>(value), n);
  };
  const auto record = [](int, void* p) {
    auto* to = static_cast<Parse*>(p);
    to->records.push_back(std::move(to->record));
    to->record.clear();
  };
  const bool good = csv_parse(&parser, text.data(), text.size(), field, record, &parse) == text.size();
  csv_free(&parser);
  if (!good) throw std::invalid_argument(path.string() + ": not a CSV file");
  return std::move(parse.records);
}

}  // namespace

std::string csv_line(const CsvRecord& fields) {
  std::string line;
  for (const std::string& field : fields) {
    if (&field != &fields.front()) line += ',';
    if (!needs_quotes(field)) {
      line += field;
      continue;
    }
    std::vector<char> quoted(2 * field.size() + 2);
    const size_t n = csv_write(quoted.data(), quoted.size(), field.data(), field.size());
    line.append(quoted.data(), n);
  }
  return line + "\n";
}

CsvTable read_csv(const std::filesystem::path& path) {
  CsvTable table;
  for (CsvRecord& record : parse_records(path)) {
    if (table.header.empty()) {
      table.header = std::move(record);
      continue;
    }
    table.records.push_back(std::move(record));
    const size_t fields = table.records.back().size();
    if (fields != table.header.size()) {
      throw std::invalid_argument(path.string() + ": row " + std::to_string(table.records.size() + 1) +
                                  " has " + std::to_string(fields) + " fields instead of " +
                                  std::to_string(table.header.size()));
    }
  }
  return table;
}

}  // namespace kv::io
