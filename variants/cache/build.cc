// What a spec's cache will hold, and why there may be none: all that needs no cache to be built.
#include "variants/cache/build.h"

#include <algorithm>
#include <array>

#include "kernels/attention.h"
#include "kernels/format/descriptor.h"
#include "kernels/format/encoding.h"
#include "variants/cache/layout.h"
#include "variants/list.h"
#include "variants/placement/planes.h"
#include "variants/storage/residual_buffer.h"
#include "variants/storage/storage.h"

namespace kv {
namespace {

// What the closed forms are computed from.
struct Prediction {
  const Spec& spec;
  const CacheShape& shape;
  Codec codec;
  PlacementContext context;

  Prediction(const Spec& spec_, const CacheShape& shape_)
      : spec(spec_),
        shape(shape_),
        codec(codec_for(spec, shape)),
        context(placement_context(spec, shape, unit(), nullptr)) {}

  UnitLayout unit() const { return unit_layout(codec, shape); }
  int64_t residual_bytes() const {
    if (!ResidualBuffer::needed(codec)) return 0;
    return ResidualBuffer::bytes(codec, shape.kv_heads, shape.head_dim, shape.is_latent());
  }

  // Heads that the placement has each for itself, or one for all.
  int placed_heads() const { return context.head_units.empty() ? 1 : shape.kv_heads; }
  // What the placement's closed forms are told of what such a head is placed with.
  PlacementContext context_of(int head) const {
    PlacementContext own = context;
    own.max_units = context.most_units(head);
    return own;
  }
  int64_t slots(int64_t tokens, int64_t prompt, int head) const {
    return retention_of(spec).slots(spec.retention, {shape.max_tokens, tokens, prompt, head, shape.kv_heads});
  }
  OuterTiers outer_tiers(int64_t tokens) const {
    const PlacementEntry& placement = placement_of(spec);
    return placement.layer_tiers ? placement.layer_tiers(spec.placement, context, units(tokens, 0, 0))
                                 : OuterTiers();
  }
  // Units of one layer's head that lie in the placement.
  int64_t units(int64_t tokens, int64_t prompt, int head) const {
    const int64_t rows = slots(tokens, prompt, head);
    return ResidualBuffer::needed(codec) ? ResidualBuffer::encoded_rows(codec, rows) / context.unit.rows
                                         : rows;
  }
};

int64_t held_bytes(const Prediction& of, std::span<const int64_t> lengths, std::span<const int64_t> prompts) {
  const Spec& spec = of.spec;
  const CacheShape& shape = of.shape;
  const PlacementEntry& placement = placement_of(spec);
  std::vector<int64_t> used;
  int64_t bytes = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    for (int head = 0; head < of.placed_heads(); ++head) {
      used.push_back(of.units(lengths[i], prompts.empty() ? 0 : prompts[i], head));
      bytes += placement.layer_bytes(spec.placement, of.context_of(head), used.back());
    }
    bytes += retention_of(spec).metadata_bytes(spec.retention, shape.max_tokens) * shape.kv_heads;
    bytes += of.residual_bytes();
    bytes += selection_bytes(of.spec, shape) * shape.kv_heads;
  }
  const int64_t shared =
      placement.shared_bytes ? placement.shared_bytes(spec.placement, of.context, used) : 0;
  return shared + bytes * shape.layers;
}

// A number that only a model's layer can give: resolve() (variants/model_cache) has it.
std::string unknown_number(const Stage& stage, const Entry& entry) {
  for (const Parameter& p : entry.parameters) {
    if (p.word.empty() || stage.values.at(std::string(p.name)) != p.word) continue;
    return "'" + std::string(p.name) + "=" + std::string(p.word) + "' is the " + std::string(p.name) +
           " of a model's layer, and this layer has none: give a number";
  }
  return "";
}

// Whether a tier stores rows otherwise than the cache's codec does.
bool has_own_codecs(const Spec& spec) {
  const std::vector<Codec> codecs = stored_codecs(spec);
  const auto differs = [&](const Codec& c) { return c.k != codecs.front().k || c.v != codecs.front().v; };
  return std::any_of(codecs.begin(), codecs.end(), differs);
}

// What the other stages do that reads every row, or keeps rows where single ones cannot be read.
std::string clash_of_selection(const Spec& spec) {
  const SelectionEntry& selection = selection_of(spec);
  if (selection.reads_all()) return "";
  const RetentionEntry& retention = retention_of(spec);
  const std::string who = "selection '" + spec.selection.name + "' ";
  if (retention.scores || retention.cuts_prompt)
    return who + "leaves rows unread, and the retention asks what attention gives to each";
  if (rotates_at_read(spec))
    return who + "leaves rows unread, and positions=cache rotates every key at each read";
  if (const auto read = spec.placement.values.find("read");
      read != spec.placement.values.end() && read->second == "repeat")
    return who + "chooses once for a kv head, and read=repeat copies all of its rows for every query head";
  if (has_tiers(spec) && selection.weighs)
    return who + "weighs every row at each step, and those in a tier's file are there a chunk at a time";
  if (has_tiers(spec) && has_own_codecs(spec))
    return who + "chooses by rows as they are stored, and a tier's own codec stores them anew";
  if (has_tiers(spec) && codec_of(spec).make(spec.codec).read_copy)
    return who + "reads single rows of a tier's file, and read=copy decodes those in memory alone";
  const std::string reason = selection.refuses(codec_of(spec).make(spec.codec), retention);
  return reason.empty() ? "" : who + reason;
}

// Heads that trade rows hold as much as the closed form says only where memory comes by parts of what they trade.
std::string clash_of_trades(const Spec& spec) {
  const RetentionEntry& retention = retention_of(spec);
  const PlacementEntry& placement = placement_of(spec);
  if (!retention.traded_rows || has_tiers(spec)) return "";
  const std::string trade = "heads of retention '" + spec.retention.name + "' trade " +
                            std::to_string(retention.traded_rows(spec.retention)) +
                            " rows at a time, and placement '" + spec.placement.name + "' takes memory by ";
  if (!placement.grain_rows) return trade + "no fixed number of rows";
  const int64_t grain = placement.grain_rows(spec.placement);
  if (retention.traded_rows(spec.retention) % grain == 0) return "";
  return trade + std::to_string(grain) + ": make `step` a multiple of that";
}

std::string clash_of_stages(const Spec& spec) {
  if (const std::string reason = unknown_number(spec.retention, retention_of(spec)); !reason.empty())
    return reason;
  const Codec codec = codec_of(spec).make(spec.codec);
  if (ResidualBuffer::needed(codec) && !retention_of(spec).keeps_all) {
    const std::string how = codec.unit_rows() > 1
                                ? "encodes groups of " + std::to_string(codec.unit_rows()) + " rows together"
                                : "keeps its newest rows raw until newer ones come";
    return "retention '" + spec.retention.name + "' drops single tokens, but codec '" + spec.codec.name +
           "' " + how;
  }
  if (codec.hadamard && rotates_at_read(spec))
    return "positions=cache rotates keys by RoPE when they are read, and those that the codec has "
           "rotated are no longer in pairs";
  const PlacementEntry& placement = placement_of(spec);
  if (const std::string reason = clash_of_trades(spec); !reason.empty()) return reason;
  const std::string reason =
      placement.refuses ? placement.refuses(spec.placement, codec, retention_of(spec)) : "";
  return reason.empty() ? clash_of_selection(spec) : reason;
}

}  // namespace

bool rotates_at_read(const Spec& spec) {
  const auto positions = spec.retention.values.find("positions");
  return positions != spec.retention.values.end() && positions->second == "cache";
}

bool rotates_at_read(const Cache& cache) {
  for (int layer = 0; layer < cache.shape().layers; ++layer) {
    if (cache.keeps_rows(layer)) return rotates_at_read(cache.spec(layer));
  }
  return false;
}

StoredValues stored_values(const Spec& spec, const CacheShape& shape) {
  const Prediction of(spec, shape);
  const int64_t tokens = shape.max_tokens;
  double kept = 0.0;
  for (int head = 0; head < of.placed_heads(); ++head) kept += static_cast<double>(of.slots(tokens, 0, head));
  if (of.context.head_units.empty()) kept *= shape.kv_heads;
  const OuterTiers outer = of.outer_tiers(tokens);
  const double unit_rows = static_cast<double>(of.context.unit.rows) * shape.kv_heads;
  const double warm = unit_rows * static_cast<double>(outer.warm_units),
               disk = unit_rows * static_cast<double>(outer.disk_units);
  const std::array<double, 3> rows{kept - warm - disk, warm, disk};  // by tier
  StoredValues all;
  const std::vector<Codec> codecs = stored_codecs(spec);
  for (size_t tier = 0; tier < codecs.size(); ++tier) {
    Codec codec = codecs[tier];
    if (shape.is_latent()) codec.v = codec.k;
    const UnitLayout unit = unit_layout(codec, shape);
    const double count = rows[tier] * shape.layers;
    all.values += count * shape.head_dim * (shape.is_latent() ? 1 : 2);
    for (const int64_t bytes : unit.bytes)
      all.bits += count * 8.0 * static_cast<double>(bytes) / static_cast<double>(unit.rows);
  }
  return all;
}

int64_t selection_bytes(const Spec& spec, const CacheShape& shape) {
  const SelectionEntry& selection = selection_of(spec);
  if (selection.reads_all()) return 0;
  return selection.metadata_bytes(spec.selection, {shape.max_tokens, shape.head_dim, nullptr});
}

int64_t predicted_bytes(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths,
                        std::span<const int64_t> prompts) {
  return held_bytes(Prediction(spec, shape), lengths, prompts);
}

int64_t predicted_copies(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths) {
  const Prediction of(spec, shape);
  int64_t bytes = 0;
  for (const int64_t tokens : lengths) {
    for (int head = 0; head < of.placed_heads(); ++head)
      bytes += ReadCopies::bytes(spec.placement, of.context, of.units(tokens, 0, head));
  }
  return bytes * shape.layers;
}

std::vector<int64_t> placed_rows(const Spec& spec, const CacheShape& shape, int64_t tokens, int64_t prompt) {
  const Prediction of(spec, shape);
  std::vector<int64_t> rows;
  for (int head = 0; head < of.placed_heads(); ++head)
    rows.push_back(of.units(tokens, prompt, head) * of.context.unit.rows);
  return rows;
}

bool has_tiers(const Spec& spec) {
  return !spec.placement.name.empty() && placement_of(spec).layer_tiers != nullptr;
}

TierBytes predicted_tiers(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths,
                          std::span<const int64_t> prompts) {
  TierBytes bytes{.hot = predicted_bytes(spec, shape, lengths, prompts)};
  const Prediction of(spec, shape);
  for (const int64_t tokens : lengths) {
    const OuterTiers outer = of.outer_tiers(tokens);
    bytes.warm += outer.warm_bytes * shape.layers;
    bytes.disk += outer.disk_bytes * shape.layers;
  }
  bytes.hot -= bytes.warm;
  return bytes;
}

TierBytes predicted_reads(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths) {
  TierBytes bytes;
  const Prediction of(spec, shape);
  for (const int64_t tokens : lengths) {
    const OuterTiers outer = of.outer_tiers(tokens);
    const int64_t units = of.units(tokens, 0, 0),
                  raw = tokens - units * of.context.unit.rows;  // in the residual buffer
    bytes.hot += (units - outer.warm_units - outer.disk_units) * of.context.unit_bytes() * shape.kv_heads +
                 raw * ResidualBuffer::row_bytes(shape.kv_heads, shape.head_dim, shape.is_latent());
    bytes.warm += outer.warm_bytes;
    bytes.disk += outer.disk_bytes;
  }
  return {bytes.hot * shape.layers, bytes.warm * shape.layers, bytes.disk * shape.layers};
}

int64_t predicted_disk_rows_bytes(const Spec& spec, const CacheShape& shape,
                                  std::span<const int64_t> lengths) {
  const Prediction of(spec, shape);
  int64_t units = 0;
  for (const int64_t tokens : lengths) units += of.outer_tiers(tokens).disk_units;
  return units * of.context.unit_bytes() * shape.kv_heads * shape.layers;
}

std::vector<Codec> stored_codecs(const Spec& spec) {
  std::vector<Codec> codecs{codec_of(spec).make(spec.codec)};
  const PlacementEntry& placement = placement_of(spec);
  if (placement.tier_codecs) {
    for (const Codec& codec : placement.tier_codecs(spec.placement, codecs.front())) codecs.push_back(codec);
  }
  return codecs;
}

double kernel_error_bound(const Spec& spec) {
  double bound = 0.0;
  for (const Codec& codec : stored_codecs(spec))
    bound = std::max(bound, attention_error_bound(codec.k, codec.v, codec.arithmetic));
  return bound;
}

std::string_view irreversible(const Codec& codec) {
  return ResidualBuffer::needed(codec) ? "older rows are encoded and no longer there raw" : "";
}

namespace {

// Why a cache cannot multiply with 8 bits what its codec stores in codes, if it is to; else empty.
std::string int8_clash(const Spec& spec, bool gpu) {
  const Codec codec = codec_of(spec).make(spec.codec);
  if (codec.arithmetic != Arithmetic::kInt8) return "";
  if (gpu) return "arithmetic=int8 has kernels for the CPU alone; use --device cpu";
  if (codec.read_copy) return "arithmetic=int8 multiplies codes, and read=copy makes floats of them first";
  if (rotates_at_read(spec))
    return "arithmetic=int8 multiplies codes, and positions=cache makes floats of keys";
  if (retention_of(spec).scores)
    return "retention '" + spec.retention.name +
           "' chooses rows by attention weights, which arithmetic=int8 would change";
  return "";
}

}  // namespace

std::string unshareable_reason(const Spec& spec) {
  if (!placement_of(spec).shares_blocks)
    return "placement '" + spec.placement.name + "' has no blocks that sequences could share";
  if (!retention_of(spec).keeps_all)
    return "retention '" + spec.retention.name + "' overwrites rows, and shared ones stay as they are";
  if (ResidualBuffer::needed(codec_of(spec).make(spec.codec)))
    return "codec '" + spec.codec.name + "' keeps a sequence's newest rows raw, outside all blocks";
  if (has_own_codecs(spec))
    return "a tier has a codec of its own, and rows that are encoded anew are not those that a sequence "
           "computes";
  return "";
}

std::string unsupported_reason(const Spec& spec, const CacheShape& shape, const cuda::Gpu* gpu) {
  std::string reason = clash_of_stages(spec);
  if (reason.empty()) reason = int8_clash(spec, gpu != nullptr);
  const std::vector<Codec> codecs = stored_codecs(spec);
  for (const Codec& codec : codecs) {
    if (reason.empty()) reason = unsupported_reason(codec.k, shape.head_dim);
    if (reason.empty() && !shape.is_latent()) reason = unsupported_reason(codec.v, shape.head_dim);
    for (const Encoding& side : {codec.k, codec.v}) {
      if (reason.empty() && gpu && !descriptor_of(side.format).on_gpu)
        reason = encoding_name(side) + " has kernels for the CPU alone; use --device cpu";
    }
  }
  if (reason.empty() && gpu && has_own_codecs(spec))
    reason = "a GPU's kernels read all tiers with one codec; leave out warm_codec and disk_codec";
  if (reason.empty() && gpu && has_tiers(spec) && spec.placement.integer("chunk") != kSplitRows)
    reason = "a GPU's kernels take pieces of " + std::to_string(kSplitRows) + " rows; leave out chunk";
  if (reason.empty() && gpu && retention_of(spec).ragged)
    reason = "heads that keep different numbers of rows are for the CPU alone; use --device cpu";
  if (reason.empty()) reason = unstorable_reason(gpu, shape.head_dim);
  if (reason.empty() && gpu && !selection_of(spec).reads_all())
    reason = "selection '" + spec.selection.name + "' has kernels for the CPU alone; use --device cpu";
  if (reason.empty() && shape.is_latent() && gpu) reason = "latent rows (MLA) are not kept on a GPU yet";
  if (reason.empty() && shape.is_latent() && codecs.front().hadamard)
    reason =
        "of a latent row (MLA) the first part is the value, and the codec's rotation would mix it with the "
        "rest";
  if (reason.empty() && codecs.front().mean_rows > 0 && gpu)
    reason = "k_mean=removed has kernels for the CPU alone; use --device cpu";
  if (reason.empty() && codecs.front().mean_rows > 0 && shape.is_latent())
    reason = "of a latent row (MLA) the first part is the value, which k_mean=removed would change";
  if (reason.empty() && shape.is_latent() && rotates_at_read(spec))
    reason = "positions=cache rotates whole keys, and of a latent row (MLA) only the last part is one";
  return reason;
}

std::string unsupported_reason(const Spec& spec, int head_dim, const cuda::Gpu* gpu) {
  return unsupported_reason(spec, CacheShape{.head_dim = head_dim}, gpu);
}

// The largest head_dim is a multiple of every block, so it has only the reasons that all have.
std::string unsupported_reason(const Spec& spec) { return unsupported_reason(spec, kMaxHeadDim); }

}  // namespace kv
