// Bytes that a cell's cache holds and reads, by the ledger and by the closed forms; both must agree.
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "harness/measure/cell.h"
#include "harness/measure/exposure.h"
#include "harness/measure/tier_columns.h"
#include "harness/memory/machine.h"
#include "harness/results/cell_columns.h"
#include "kernels/format/encoding.h"
#include "variants/cache/layout.h"
#include "variants/cache/spec.h"

namespace kv::measure {
namespace {

// Payload of `bytes` of whole units; the rest is scales and zero points.
int64_t payload_of_units(const Spec& spec, const CacheShape& shape, int64_t bytes) {
  const Codec codec = codec_for(spec, shape);
  const int head_dim = shape.head_dim;
  int64_t data = 0, all = 0;
  for (const Encoding* side : {&codec.k, &codec.v}) {
    if (side == &codec.v && shape.is_latent()) continue;
    const int64_t encoded = codec.unit_rows() / side->group;
    data += encoded * unit_data_bytes(*side, head_dim);
    all += encoded * (unit_data_bytes(*side, head_dim) + unit_meta_bytes(*side, head_dim));
  }
  return bytes / all * data;
}

// Payload in files, summed over the groups of layers.
int64_t payload_on_disk(const LayerSpecs& specs, const ModelShape& shape, std::span<const int64_t> lengths) {
  int64_t bytes = 0;
  for (const LayerGroup& group : kv::groups_of(specs, shape)) {
    if (group.linear) continue;
    const int64_t rows = predicted_disk_rows_bytes(group.spec, shape_of(group, shape), lengths);
    bytes += payload_of_units(group.spec, shape, rows);
  }
  return bytes;
}

// Bytes of the linear layers' states in memory.
int64_t state_bytes(const LayerSpecs& specs, const ModelShape& shape, int64_t sequences) {
  int64_t bytes = 0;
  for (const LayerGroup& group : kv::groups_of(specs, shape)) {
    if (group.linear) bytes += linear_state_bytes(shape.linear) * std::ssize(group.layers) * sequences;
  }
  return bytes;
}

// True if no sequence gave an evicting policy a reason to evict.
results::Integer keeps_all(const Cache& cache, std::span<const int64_t> lengths,
                           std::span<const int64_t> prompts) {
  results::Integer kept = {};
  for (int layer = 0; layer < cache.shape().layers; ++layer) {
    if (!cache.keeps_rows(layer)) continue;
    const Spec& spec = cache.spec(layer);
    const RetentionEntry& retention = retention_of(spec);
    if (retention.keeps_all) continue;
    kept = 1;
    for (size_t i = 0; i < lengths.size(); ++i) {
      for (int head = 0; head < cache.shape().kv_heads; ++head) {
        const SequenceLengths of{cache.shape().max_tokens,
                                 lengths[i],
                                 prompts[i],
                                 head,
                                 cache.shape().kv_heads,
                                 codec_of(spec).make(spec.codec).units()};
        if (retention.slots(spec.retention, of) < lengths[i]) return 0;
      }
    }
  }
  return kept;
}

std::string tier_text(const TierBytes& bytes) {
  return std::to_string(bytes.hot) + " bytes hot, " + std::to_string(bytes.warm) + " warm and " +
         std::to_string(bytes.disk) + " on the disk";
}

}  // namespace

void Cell::account(std::span<const int64_t> lengths, std::span<const int64_t> prompts) {
  ledger->assert_balanced();
  // Variants with read=copy slice rows that are read back. These copies are the harness's, not the step's.
  const int64_t workspace_peak = ledger->workspace().peak_bytes, copied = ledger->copied_bytes();
  result[results::kPeakBytes] = ledger->peak_total_bytes();
  result[results::kBytesCopied] = copied - read_back_bytes_;
  const AttendWork used = attend_work(*cache, ids, *ledger);
  read_back_bytes_ += ledger->copied_bytes() - copied;
  reads_in_place = ledger->copied_bytes() == copied && ledger->disk().current_bytes == 0;
  const int64_t payload = ledger->payload().current_bytes, metadata = ledger->metadata().current_bytes;
  const std::vector<int64_t> alike(lengths.size(), prompt);
  const int64_t predicted = predicted_bytes(spec, shape(), lengths, prompts.empty() ? alike : prompts);
  if (payload + metadata != predicted) {
    throw std::logic_error("'" + spec.print() + "' holds " + std::to_string(payload + metadata) +
                           " bytes, but its closed form says " + std::to_string(predicted));
  }
  account_tiers(used, lengths, prompts.empty() ? alike : prompts);
  const int64_t disk = ledger->disk().current_bytes;
  // Spans show rows in files too. On a GPU all spans are copies and all rows are stored alike.
  const int64_t states = state_bytes(spec, shape(), std::ssize(lengths));
  const int64_t in_files = ledger->gpu() ? payload_on_disk(spec, shape(), lengths) : used.payload_in_files;
  const int64_t in_memory = used.payload - in_files + states;
  if (in_memory > payload) {
    throw std::logic_error("'" + spec.print() + "' shows spans of " + std::to_string(in_memory) +
                           " bytes in memory, but the ledger has " + std::to_string(payload));
  }
  result[results::kBytesPayload] = in_memory;
  if (states > 0) result[results::kBytesState] = states;
  result[results::kBytesMetadata] = metadata;
  result[results::kBytesSlack] = payload - in_memory;
  result[results::kBytesDisk] = disk;
  result[results::kBytesWorkspacePeak] = workspace_peak;
  result[results::kBytesPredicted] = predicted;
  if (model.layers > shape().layers) {
    model.max_tokens = cache->shape().max_tokens;
    model.max_sequences = cache->shape().max_sequences;
    result[results::kModelBytes] = predicted_bytes(spec, model, lengths, prompts.empty() ? alike : prompts);
  }
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  result[results::kHeldBytesPerToken] =
      static_cast<double>(payload + metadata + disk) / static_cast<double>(tokens);
  account_codes(tokens);
  // The newest query's shares, whose error is counted. Readings judge others, and say so after this.
  const int64_t newest = lengths.empty() ? 0 : lengths.front() - 1,
                first_step = prompts.empty() ? prompt : prompts.front();
  const RowShares shares =
      row_shares(spec, shape(), {.length = newest + 1, .first = newest, .prompt = first_step});
  result[kEncodedShare] = shares.encoded;
  result[kDroppedShare] = shares.dropped;
  result[results::kKeepsAll] = keeps_all(*cache, lengths, prompts.empty() ? alike : prompts);
  result[results::kBytesDevicePeak] = ledger->device().peak_bytes;
  result[results::kRssPeakBytes] = memory::peak_rss_bytes();
  read_bytes = used.read * cache->repeats();
  result[results::kBytesRead] = read_bytes;
  multiply_adds = used.multiply_adds;
}

void Cell::account_codes(int64_t tokens) {
  const memory::Ledger::Calls calls = ledger->calls();
  if (calls.coded_values == 0) return;
  const CacheShape& of = cache->shape();
  int64_t coded = 0, all = 0;  // values that are kept
  for (int layer = 0; layer < of.layers; ++layer) {
    if (!cache->keeps_rows(layer)) continue;
    const bool calls_codec = !codec_of(cache->spec(layer)).make(cache->spec(layer).codec).function.empty();
    for (const SequenceId id : ids) {
      for (int head = 0; head < of.kv_heads; ++head) {
        const int64_t values =
            std::ssize(cache->kept(id, layer, head)) * of.head_dim * (of.is_latent() ? 1 : 2);
        all += values;
        coded += calls_codec ? values : 0;
      }
    }
  }
  constexpr double kHeldBits = 8.0 * sizeof(float);
  const double saved_bits =
      kHeldBits - 8.0 * static_cast<double>(calls.code_bytes) / static_cast<double>(calls.coded_values);
  const double saved = static_cast<double>(coded) * saved_bits / 8.0;
  result[results::kBitsPerValue] =
      bits_per_value(spec, shape()) - saved_bits * static_cast<double>(coded) / static_cast<double>(all);
  result[results::kBytesPayload] = *result[results::kBytesPayload] - std::llround(saved);
  result[results::kHeldBytesPerToken] =
      *result[results::kHeldBytesPerToken] - saved / static_cast<double>(tokens);
  result[results::kBytesPredicted] = {};  // no closed form knows them
}

void Cell::account_tiers(const AttendWork& used, std::span<const int64_t> lengths,
                         std::span<const int64_t> prompts) {
  const TierBytes held = ledger->tiers(), predicted = predicted_tiers(spec, shape(), lengths, prompts);
  if (held != predicted) {
    throw std::logic_error("'" + spec.print() + "' holds " + tier_text(held) + ", but its closed form says " +
                           tier_text(predicted));
  }
  if (!has_tiers(spec)) return;
  result[kBytesHot] = held.hot;
  result[kBytesWarm] = held.warm;
  if (ledger->gpu()) return;  // a GPU's spans are copies, which lie in no tier
  result[kReadHotBytes] = used.hot;
  result[kReadWarmBytes] = used.warm;
  result[kReadDiskBytes] = step_disk_bytes;
  const auto is_slowed = [](const Spec& s) {
    const std::optional<TierSettings> tiers = tier_settings(s);
    return tiers && tiers->link_gbps > 0.0;
  };
  if (spec.any(is_slowed)) result[kSimulated] = "link";
}

}  // namespace kv::measure
