#include "harness/tables/fit_table.h"

#include <algorithm>
#include <functional>

#include "harness/io/text.h"
#include "harness/tables/memory_table.h"
#include "harness/tables/model_memory.h"
#include "harness/tables/table_columns.h"

namespace kv::tables {
namespace {

using Try = std::function<ModelMemory(int64_t)>;  // the cache of so many tokens or sequences

// The largest n for which the cache fits into `room`. Caches never shrink as n grows, and an unsupported n has no supported
// one above it.
Fit largest(int64_t most, const Room& room, const Try& cache) {
  const auto fits = [&](int64_t n) {
    const ModelMemory c = cache(n);
    return c.unsupported().empty() && c.predicted_bytes() <= room.bytes &&
           c.predicted_tiers().disk <= room.disk_bytes;
  };
  int64_t good = 0, bad = 1;
  while (bad <= most && fits(bad)) {
    good = bad;
    bad = good == most ? most + 1 : std::min(2 * good, most);
  }
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  Fit fit{.most = good};
  if (good > 0) {
    fit.bytes = cache(good).predicted_bytes();
    fit.tiers = cache(good).predicted_tiers();
  }
  if (good < most) fit.reason = cache(good + 1).unsupported();
  return fit;
}

Room left_for_caches(const FitTable& table) {
  return {table.budget_bytes - table.weights_bytes.value_or(0), table.disk_bytes.value_or(INT64_MAX)};
}

io::TextTable::Field field(const Fit& fit, int64_t most, io::TextTable& table) {
  const std::string text = fit.most == 0 ? "-" : fit.most == most ? "any" : grouped(fit.most);
  return {text, fit.reason.empty() ? "" : table.footnote(fit.reason)};
}

std::string weights_sentence(const FitTable& table, io::Units units) {
  if (!table.weights_bytes)
    return "The weights are not counted, since their size is not known: --weights gives it.";
  if (*table.weights_bytes == 0) return "No weights are counted.";
  const int64_t left = left_for_caches(table).bytes;
  return "Weights take " + table.weights_text + ", " +
         (left > 0 ? io::human_bytes(left, units) + " remain for caches."
                   : "and nothing remains for caches.");
}

results::Row result_of(const FitTable& table, const LayerSpecs& spec, const Fit& fit, int64_t most) {
  results::Row row;
  row[kModel] = table.geometry.name;
  row[results::kVariant] = spec.print();
  row[kBudgetBytes] = table.budget_bytes;
  if (table.weights_bytes) row[kWeightsBytes] = *table.weights_bytes;
  row[kWeightsFrom] = table.weights_from;
  row[kFitStatus] = fit.most == 0 ? "none" : fit.most == most ? "unbounded" : "fits";
  row[results::kReason] = fit.reason;
  row[kBytes] = fit.bytes;
  if (table.disk_bytes) row[kDiskBudgetBytes] = *table.disk_bytes;
  row[kBytesHot] = fit.tiers.hot;
  row[kBytesWarm] = fit.tiers.warm;
  row[kBytesDisk] = fit.tiers.disk;
  return row;
}

// A context beyond the trained one is marked, not cut: a model can be extended.
io::TextTable::Field context_field(const FitTable& table, const Fit& fit, io::TextTable& text) {
  io::TextTable::Field shown = field(fit, kMostTokens, text);
  const int64_t trained = table.geometry.max_positions;
  if (trained == 0 || fit.most <= trained || fit.most == kMostTokens || !shown.mark.empty()) return shown;
  shown.mark = "+";
  if (text.notes.empty() || text.notes.front().mark != "+")
    text.notes.insert(text.notes.begin(),
                      {"+", "more than the " + grouped(trained) + " tokens that it was trained for"});
  return shown;
}

}  // namespace

Fit longest_context(const config::Geometry& geometry, const LayerSpecs& spec, int batch, const Room& room) {
  return largest(kMostTokens, room, [&](int64_t tokens) {
    return ModelMemory(geometry, spec, {tokens, batch});
  });
}

Fit largest_batch(const config::Geometry& geometry, const LayerSpecs& spec, int64_t tokens,
                  const Room& room) {
  return largest(kMostSequences, room, [&](int64_t sequences) {
    return ModelMemory(geometry, spec, {tokens, static_cast<int>(sequences)});
  });
}

io::TextTable text_table(const FitTable& table, io::Units units) {
  io::TextTable text;
  text.title = "What fits into " + table.budget_text +
               (table.disk_bytes ? " of memory and " + table.disk_text + " of disk" : "") + " with " +
               table.geometry.name;
  text.facts = config::summary(table.geometry) + " " + weights_sentence(table, units);
  const std::string placement = common_placement(table.variants);
  if (!placement.empty()) text.facts += " All caches are " + placement + ".";
  text.corner = "variant";
  text.heads.push_back({"longest", "context,", "batch " + std::to_string(table.batch)});
  if (table.disk_bytes) {
    for (const char* tier : {"hot", "warm", "on disk"}) text.heads.push_back({"of it", tier});
  }
  for (const int64_t tokens : table.lengths)
    text.heads.push_back({"largest", "batch of", std::to_string(tokens)});
  const Room left = left_for_caches(table);
  for (const LayerSpecs& spec : table.variants) {
    const Fit longest = longest_context(table.geometry, spec, table.batch, left);
    std::vector<io::TextTable::Field> fields{context_field(table, longest, text)};
    if (table.disk_bytes) {
      for (const int64_t bytes : {longest.tiers.hot, longest.tiers.warm, longest.tiers.disk})
        fields.push_back({bytes > 0 ? io::human_bytes(bytes, units) : "-"});
    }
    for (const int64_t tokens : table.lengths)
      fields.push_back(field(largest_batch(table.geometry, spec, tokens, left), kMostSequences, text));
    text.rows.push_back(
        {placement.empty() ? spec.print() : io::joined(stages(spec, placement), "/"), fields});
  }
  text.notes.push_back(
      {"",
       "Contexts in tokens; batches in sequences of so many; -: not even one fits. By the closed form: "
       "payload, metadata and slack of caches made for so many, without workspace and activations."});
  return text;
}

std::vector<results::Row> results_of(const FitTable& table) {
  std::vector<results::Row> rows;
  const Room left = left_for_caches(table);
  for (const LayerSpecs& spec : table.variants) {
    const Fit context = longest_context(table.geometry, spec, table.batch, left);
    results::Row& longest = rows.emplace_back(result_of(table, spec, context, kMostTokens));
    longest[kAsked] = "longest_context";
    longest[kSeqLen] = context.most;
    longest[results::kBatch] = table.batch;
    for (const int64_t tokens : table.lengths) {
      const Fit batch = largest_batch(table.geometry, spec, tokens, left);
      results::Row& most = rows.emplace_back(result_of(table, spec, batch, kMostSequences));
      most[kAsked] = "largest_batch";
      most[kSeqLen] = tokens;
      most[results::kBatch] = batch.most;
    }
  }
  return rows;
}

}  // namespace kv::tables
