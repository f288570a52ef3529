#include "harness/tables/fit_table.h"

#include <algorithm>
#include <array>
#include <functional>

#include "harness/io/text.h"
#include "harness/tables/memory_table.h"
#include "harness/tables/model_memory.h"

namespace kv::tables {
namespace {

using Try = std::function<ModelMemory(int64_t)>;  // the cache of so many tokens or sequences

// The largest n for which the cache holds no more than `bytes`. Caches never shrink as n grows, and what is
// unsupported stays so.
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

FitResult result_of(const FitTable& table, const LayerSpecs& spec, const Fit& fit, int64_t most) {
  FitResult row;
  row.model = table.geometry.name;
  row.variant = spec.print();
  row.budget_bytes = table.budget_bytes;
  if (table.weights_bytes) row.weights_bytes = *table.weights_bytes;
  row.weights_from = table.weights_from;
  row.status = fit.most == 0 ? "none" : fit.most == most ? "unbounded" : "fits";
  row.reason = fit.reason;
  row.bytes = fit.bytes;
  if (table.disk_bytes) row.disk_budget_bytes = *table.disk_bytes;
  row.bytes_hot = fit.tiers.hot;
  row.bytes_warm = fit.tiers.warm;
  row.bytes_disk = fit.tiers.disk;
  return row;
}

// Beyond the tokens that the model was trained for, the figure is marked, not cut: a model can be extended.
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

std::string grouped(int64_t n) {
  std::string digits = std::to_string(n);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

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
  text.notes.push_back({"",
                        "Contexts in tokens; batches in sequences of so many; -: not even one fits. By the "
                        "closed form: payload, "
                        "metadata and slack of caches made for so many, without workspace and activations."});
  return text;
}

const results::Schema<FitResult>& fit_schema() {
  using F = FitResult;
  static const results::Schema<F> schema(
      "the budget table",
      {{"model", "", &F::model, "whose geometry it is"},
       {"variant", "", &F::variant, "canonical spec"},
       {"budget_bytes", "bytes", &F::budget_bytes, "of weights and caches"},
       {"weights_bytes", "bytes", &F::weights_bytes, "empty where they are not known, and so not counted"},
       {"weights_from", "", &F::weights_from,
        "given (--weights), stated (in the model's file) or computed (from the shapes there)"},
       {"asked", "", &F::asked, "longest_context or largest_batch"},
       {"seq_len", "tokens", &F::seq_len, "of each sequence"},
       {"batch", "", &F::batch, "sequences"},
       {"status", "", &F::status, "fits; unbounded: at least this many; none: not even one"},
       {"reason", "", &F::reason, "why more is not possible, if it is not for want of memory"},
       {"bytes", "bytes", &F::bytes, "of the caches then, in memory"},
       {"disk_budget_bytes", "bytes", &F::disk_budget_bytes, "of files; empty: any number"},
       {"bytes_hot", "bytes", &F::bytes_hot,
        "of the caches then: in the memory that rows are stored in first"},
       {"bytes_warm", "bytes", &F::bytes_warm, "in the second pool of memory"},
       {"bytes_disk", "bytes", &F::bytes_disk, "in files"}});
  return schema;
}

std::vector<FitResult> results_of(const FitTable& table) {
  std::vector<FitResult> rows;
  const Room left = left_for_caches(table);
  for (const LayerSpecs& spec : table.variants) {
    const Fit context = longest_context(table.geometry, spec, table.batch, left);
    FitResult& longest = rows.emplace_back(result_of(table, spec, context, kMostTokens));
    longest.asked = "longest_context";
    longest.seq_len = context.most;
    longest.batch = table.batch;
    for (const int64_t tokens : table.lengths) {
      const Fit batch = largest_batch(table.geometry, spec, tokens, left);
      FitResult& most = rows.emplace_back(result_of(table, spec, batch, kMostSequences));
      most.asked = "largest_batch";
      most.seq_len = tokens;
      most.batch = batch.most;
    }
  }
  return rows;
}

}  // namespace kv::tables
