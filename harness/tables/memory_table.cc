#include "harness/tables/memory_table.h"

#include <algorithm>
#include <array>
#include <new>

#include "harness/memory/machine.h"
#include "harness/tables/model_memory.h"

namespace kv::tables {
namespace {

const char* status_name(MemoryCell::Status status) {
  constexpr std::array kNames{"measured", "computed", "unsupported"};
  return kNames[static_cast<size_t>(status)];
}

// A cache that forgets most of what it is given is small and still takes long to fill. At this much more than
// the largest cache it is the codecs of 2 bits, at that size, that just pass.
constexpr double kFillingShare = 8.0;

bool worth_building(const ModelMemory& cache, const MemoryCell& cell, int64_t measured_up_to) {
  // Files would be as large on this machine's disk.
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
    // Then it does not fit this machine, and stays computed.
  }
  return cell;
}

// A note on the context that the model was trained for, if the table reaches it.
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

const results::Schema<MemoryResult>& memory_schema() {
  using M = MemoryResult;
  static const results::Schema<M> schema(
      "the memory table",
      {{"model", "", &M::model, "whose geometry it is"},
       {"batch", "", &M::batch, "sequences"},
       {"seq_len", "tokens", &M::seq_len, "of each sequence; caches are made for no more"},
       {"variant", "", &M::variant, "canonical spec"},
       {"status", "", &M::status,
        "measured: ledger and closed form agree; computed: closed form only; unsupported"},
       {"reason", "", &M::reason, "why it is unsupported"},
       {"bytes", "bytes", &M::bytes, "payload, metadata and slack"},
       {"bytes_per_token", "bytes", &M::bytes_per_token, "of each token of a sequence"},
       {"disk_bytes", "bytes", &M::disk_bytes, "in files besides"}});
  return schema;
}

std::vector<MemoryResult> results_of(const MemoryTable& table) {
  std::vector<MemoryResult> rows;
  for (size_t i = 0; i < table.lengths.size(); ++i) {
    for (size_t j = 0; j < table.variants.size(); ++j) {
      const MemoryCell& cell = table.cells[i][j];
      MemoryResult& row = rows.emplace_back();
      row.model = table.geometry.name;
      row.batch = table.batch;
      row.seq_len = table.lengths[i];
      row.variant = table.variants[j].print();
      row.status = status_name(cell.status);
      row.reason = cell.reason;
      if (cell.status == MemoryCell::Status::kUnsupported) continue;
      row.bytes = cell.bytes;
      row.bytes_per_token =
          static_cast<double>(cell.bytes) / (static_cast<double>(table.lengths[i]) * table.batch);
      row.disk_bytes = cell.disk_bytes;
    }
  }
  return rows;
}

}  // namespace kv::tables
