#include "harness/tables/memory_table.h"

#include <algorithm>
#include <array>
#include <new>

#include "harness/memory/machine.h"
#include "harness/tables/model_memory.h"
#include "harness/tables/table_columns.h"

namespace kv::tables {
namespace {

const char* status_name(MemoryCell::Status status) {
  constexpr std::array kNames{"measured", "computed", "unsupported"};
  return kNames[static_cast<size_t>(status)];
}

// Bytes of tokens that may be fed to a cache / bytes of the largest cache to build. A cache that evicts most tokens is small
// and still slow to fill. Codecs of 2 bits just pass.
constexpr double kFillingShare = 8.0;

bool worth_building(const ModelMemory& cache, const MemoryCell& cell, int64_t measured_up_to) {
  // Building a cache writes its files to this machine's disk.
  return cell.bytes + cell.disk_bytes <= measured_up_to &&
         cache.filling_bytes() <= kFillingShare * static_cast<double>(measured_up_to);
}

MemoryCell compute_cell(const ModelMemory& cache, int64_t measured_up_to) {
  MemoryCell cell;
  cell.reason = cache.unsupported();
  if (!cell.reason.empty()) {
    cell.status = MemoryCell::Status::kUnsupported;
    return cell;
  }
  cell.bytes = cache.predicted_bytes();
  cell.disk_bytes = cache.predicted_tiers().disk;
  if (!worth_building(cache, cell, measured_up_to)) return cell;
  try {
    cache.ledger_bytes();
    cell.status = MemoryCell::Status::kMeasured;
  } catch (const std::bad_alloc&) {
    // The cache exceeds this machine's memory, so the cell stays computed.
  }
  return cell;
}

// Notes the trained context if the table reaches it.
std::string note_on_training(const MemoryTable& table) {
  const int64_t trained = table.geometry.max_positions,
                longest = *std::max_element(table.lengths.begin(), table.lengths.end());
  if (trained == 0 || longest < trained) return "";
  const std::string tokens = std::to_string(trained) + " tokens that the model was trained for";
  return longest == trained ? "Ends with the " + tokens + "; --lengths asks for more."
                            : "Goes beyond the " + tokens + ", as --lengths asks.";
}

}  // namespace

std::vector<std::string> stages(const LayerSpecs& spec, const std::string& without) {
  std::vector<std::string> lines{""};
  if (!spec.is_one()) {
    lines = {spec.fallback.print()};
    for (const LayerException& e : spec.exceptions)
      lines.push_back("+ " + e.selector() + ":" + e.spec.print());
    return lines;
  }
  int depth = 0;
  for (const char c : spec.print()) {
    depth += (c == '(') - (c == ')');
    if (c == '/' && depth == 0) {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  static const Spec kDefaults = parse_spec("contiguous");
  if (spec.fallback.codec == kDefaults.codec) lines.insert(lines.begin() + 1, "f32");
  if (lines.front() == without) lines.erase(lines.begin());
  return lines;
}

std::string common_placement(const std::vector<LayerSpecs>& variants) {
  const std::string placement = stages(variants.front()).front();
  const bool common = variants.size() > 1 &&
                      std::all_of(variants.begin(), variants.end(),
                                  [&](const LayerSpecs& spec) { return stages(spec).front() == placement; });
  return common ? placement : "";
}

void compute(MemoryTable& table, const std::function<void(int, int, const std::string&)>& progress) {
  const int64_t limit = std::min(table.measured_up_to, memory::available_memory_bytes() / 2);
  const int total = static_cast<int>(table.lengths.size() * table.variants.size());
  int done = 0;
  for (const int64_t tokens : table.lengths) {
    table.cells.emplace_back();
    for (const LayerSpecs& spec : table.variants) {
      progress(done++, total, table.geometry.name + " " + spec.print() + " " + std::to_string(tokens));
      table.cells.back().push_back(
          compute_cell(ModelMemory(table.geometry, spec, {tokens, table.batch}), limit));
    }
  }
}

io::TextTable text_table(const MemoryTable& table, io::Units units) {
  io::TextTable text;
  text.title = "KV cache of " + table.geometry.name + ", batch " + std::to_string(table.batch);
  text.facts = config::summary(table.geometry);
  text.corner = "tokens";
  const std::string placement = common_placement(table.variants);
  if (!placement.empty()) text.facts += " All caches are " + placement + ".";
  for (const LayerSpecs& spec : table.variants) text.heads.push_back(stages(spec, placement));
  bool computed = false, measured = false, disk = false;
  for (size_t i = 0; i < table.lengths.size(); ++i) {
    text.rows.push_back({std::to_string(table.lengths[i]), {}});
    for (const MemoryCell& cell : table.cells[i]) {
      if (cell.status == MemoryCell::Status::kUnsupported) {
        text.rows.back().fields.push_back({"-", text.footnote(cell.reason)});
        continue;
      }
      const bool counted = cell.status == MemoryCell::Status::kMeasured;
      (counted ? measured : computed) = true;
      disk = disk || cell.disk_bytes > 0;
      text.rows.back().fields.push_back({io::human_bytes(cell.bytes, units), counted ? "" : "*"});
    }
  }
  const std::string built =
      "measured: such a cache was built and filled, and the ledger's count is the closed form";
  if (computed && measured) {
    text.notes.insert(text.notes.begin(),
                      {"*", "computed only, by the closed form. The others are " + built + "."});
  } else if (computed) {
    text.notes.insert(text.notes.begin(), {"*", "computed only, by the closed form."});
  } else if (measured) {
    text.notes.push_back({"", "All are " + built + "."});
  }
  text.notes.push_back({"", "Payload, metadata and slack of a cache made for so many tokens" +
                                std::string(table.batch > 1 ? " a sequence" : "") +
                                "; without workspace and weights."});
  if (const std::string note = note_on_training(table); !note.empty()) text.notes.push_back({"", note});
  if (disk) text.notes.push_back({"", "Files are not in these figures; the CSV has them."});
  return text;
}

std::vector<results::Row> results_of(const MemoryTable& table) {
  std::vector<results::Row> rows;
  for (size_t i = 0; i < table.lengths.size(); ++i) {
    for (size_t j = 0; j < table.variants.size(); ++j) {
      const MemoryCell& cell = table.cells[i][j];
      results::Row& row = rows.emplace_back();
      row[kModel] = table.geometry.name;
      row[results::kBatch] = table.batch;
      row[kSeqLen] = table.lengths[i];
      row[results::kVariant] = table.variants[j].print();
      row[kMemoryStatus] = status_name(cell.status);
      row[results::kReason] = cell.reason;
      if (cell.status == MemoryCell::Status::kUnsupported) continue;
      row[kBytes] = cell.bytes;
      row[kBytesPerToken] =
          static_cast<double>(cell.bytes) / (static_cast<double>(table.lengths[i]) * table.batch);
      row[kDiskBytes] = cell.disk_bytes;
    }
  }
  return rows;
}

}  // namespace kv::tables
