// The refusals, as a table of traits that do not go together, and facts that follow from a spec.
#include "variants/cache/compatibility.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/attention.h"
#include "kernels/format/descriptor.h"
#include "kernels/format/encoding.h"
#include "variants/cache/prefill.h"
#include "variants/list.h"
#include "variants/storage/residual_buffer.h"
#include "variants/storage/storage.h"

namespace kv {
namespace {

struct Pairing {
  const Spec& spec;
  const CacheShape& shape;
  const cuda::Gpu* gpu;
  const PlacementEntry& placement = placement_of(spec);
  const RetentionEntry& retention = retention_of(spec);
  const SelectionEntry& selection = selection_of(spec);
  const std::vector<Codec> codecs = stored_codecs(spec);  // the cache's, then the tiers'
  const Codec& codec = codecs.front();
};

// A property of stages, a geometry or a device.
using Trait = bool (*)(const Pairing& of);
constexpr Trait kDropsTokens = [](const Pairing& of) { return !of.retention.keeps_all; };
constexpr Trait kScoresTokens = [](const Pairing& of) { return of.retention.scores; };
constexpr Trait kCutsPrompt = [](const Pairing& of) { return of.retention.cuts_prompt; };
constexpr Trait kRagged = [](const Pairing& of) { return of.retention.ragged; };
constexpr Trait kRotatesAtRead = [](const Pairing& of) { return rotates_at_read(of.spec); };
constexpr Trait kGroupsRows = [](const Pairing& of) { return of.codec.unit_rows() > 1; };
constexpr Trait kBuffersRows = [](const Pairing& of) { return ResidualBuffer::needed(of.codec); };
constexpr Trait kDelaysRows = [](const Pairing& of) { return ResidualBuffer::waits(of.codec); };
constexpr Trait kKeepsFirst = [](const Pairing& of) { return of.codec.first > 0; };
constexpr Trait kRotatesChannels = [](const Pairing& of) { return of.codec.rotates(); };
constexpr Trait kRotatesKeys = [](const Pairing& of) { return of.codec.k_rotation != Rotation::kNone; };
constexpr Trait kMultipliesInt8 = [](const Pairing& of) { return of.codec.arithmetic == Arithmetic::kInt8; };
constexpr Trait kDecodesCopy = [](const Pairing& of) { return of.codec.read_copy; };
constexpr Trait kRemovesMean = [](const Pairing& of) { return of.codec.mean_rows > 0; };
constexpr Trait kPrefillsFull = [](const Pairing& of) { return prefills_full(of.spec); };
constexpr Trait kRepeatsRows = [](const Pairing& of) {
  return of.placement.read_mode(of.spec.placement) == ReadMode::kRepeat;
};
constexpr Trait kTiered = [](const Pairing& of) { return of.placement.tiers != nullptr; };
constexpr Trait kReencodes = [](const Pairing& of) {
  return std::ranges::any_of(of.codecs,
                             [&](const Codec& c) { return c.k != of.codec.k || c.v != of.codec.v; });
};
constexpr Trait kLongPieces = [](const Pairing& of) {
  return kTiered(of) && of.placement.tiers->settings(of.spec.placement).piece_rows != kSplitRows;
};
constexpr Trait kOwnsBlocks = [](const Pairing& of) { return !of.placement.shares_blocks; };
constexpr Trait kSelects = [](const Pairing& of) { return !of.selection.reads_all(); };
constexpr Trait kSelectsInFiles = [](const Pairing& of) { return kSelects(of) && kTiered(of); };
constexpr Trait kWeighsRows = [](const Pairing& of) { return of.selection.weighs; };
constexpr Trait kLatent = [](const Pairing& of) { return of.shape.is_latent(); };  // MLA
constexpr Trait kOnGpu = [](const Pairing& of) { return of.gpu != nullptr; };
constexpr Trait kLearned = [](const Pairing& of) {
  return std::ranges::any_of(of.codecs, [](const Codec& c) { return c.learned(); });
};
constexpr Trait kLearnedKeys = [](const Pairing& of) { return of.codec.learned_keys(); };
constexpr Trait kRotatesBefore = [](const Pairing& of) { return !rotates_at_read(of.spec); };
constexpr Trait kAlways = [](const Pairing&) { return true; };

// A number that only a model's layer can give: resolve() (variants/model_cache) has it.
std::string unknown_number(const Pairing& of) {
  for (const Parameter& p : of.retention.parameters) {
    if (p.word.empty() || of.spec.retention.text(std::string(p.name)) != p.word) continue;
    return "'" + std::string(p.name) + "=" + std::string(p.word) + "' is the " + std::string(p.name) +
           " of a model's layer, and this layer has none: give a number";
  }
  return "";
}

// Heads that trade rows hold the bytes of the closed form only if memory comes by divisors of the rows they trade.
std::string uneven_trade(const Pairing& of) {
  if (!of.retention.traded_rows || of.placement.tiers) return "";
  const int64_t traded = of.retention.traded_rows(of.spec.retention);
  const std::string trade = "heads of retention '{retention}' trade " + std::to_string(traded) +
                            " rows at a time, and placement '{placement}' takes memory by ";
  if (!of.placement.grain_rows) return trade + "no fixed number of rows";
  const int64_t grain = of.placement.grain_rows(of.spec.placement);
  return traded % grain == 0 ? "" : trade + std::to_string(grain) + ": make `step` a multiple of that";
}

// Rows that stay raw are those of the first slots, which have to stay the first tokens'.
std::string moving_first(const Pairing& of) {
  if (of.codec.first == 0 || of.retention.keeps_all) return "";
  const int64_t sinks = of.retention.sinks ? of.retention.sinks(of.spec.retention) : 0;
  if (of.codec.first <= sinks) return "";
  const std::string first = std::to_string(of.codec.first);
  return "first=" + first + " keeps the first rows raw, and retention '{retention}' " +
         (of.retention.sinks ? "keeps only `sinks` of them: make those " + first + " or more"
                             : "puts other tokens' rows in their slots");
}

std::string unplaceable(const Pairing& of) {
  return of.placement.refuses ? of.placement.refuses(of.spec.placement, of.codec, of.retention) : "";
}

std::string unselectable(const Pairing& of) {
  const std::string reason = of.selection.refuses ? of.selection.refuses(of.codec, of.retention) : "";
  return reason.empty() ? "" : "selection '{selection}' " + reason;
}

std::string unencodable(const Pairing& of) {
  for (const Codec& codec : of.codecs) {
    std::string reason = unsupported_reason(codec.k, of.shape.head_dim);
    if (reason.empty() && !of.shape.is_latent()) reason = unsupported_reason(codec.v, of.shape.head_dim);
    for (const Encoding& side : {codec.k, codec.v}) {
      if (reason.empty() && of.gpu && !descriptor_of(side.format).on_gpu)
        reason = encoding_name(side) + " has kernels for the CPU alone; use --device cpu";
    }
    if (!reason.empty()) return reason;
  }
  return "";
}

std::string unstorable(const Pairing& of) { return unstorable_reason(of.gpu, of.shape.head_dim); }

// A cache with the trait `asked` is refused if it has `lacking`, which lacks what the other asks for. Or a reason is
// computed. Names and numbers of the cache stand in for {…}.
struct Refusal {
  Trait asked = nullptr, lacking = nullptr;
  const char* reason = nullptr;
  std::string (*computed)(const Pairing& of) = nullptr;
};

// The first reason counts.
constexpr Refusal kRefusals[] = {
    {.computed = unknown_number},
    {kGroupsRows, kDropsTokens,
     "retention '{retention}' drops single tokens, but codec '{codec}' encodes groups of {unit_rows} rows "
     "together"},
    {kDelaysRows, kDropsTokens,
     "retention '{retention}' drops single tokens, but codec '{codec}' keeps its newest rows raw until newer "
     "ones come"},
    {.computed = moving_first},
    {kKeepsFirst, kTiered,
     "first=N keeps rows in front of all others, and tiers read the oldest rows a chunk at a time"},
    {kKeepsFirst, kOnGpu, "first=N has kernels for the CPU alone; use --device cpu"},
    {kRotatesKeys, kRotatesAtRead,
     "positions=cache rotates keys by RoPE when they are read, and those that the codec has rotated are no "
     "longer in pairs"},
    {kLearnedKeys, kRotatesBefore,
     "learned codebooks are of keys before RoPE: a retention with positions=cache, as full(positions=cache), "
     "stores those"},
    {kLearned, kTiered, "learned codebooks are found by layer and head, and tiers read pieces of all heads"},
    {kLearned, kLatent, "there are no learned codebooks of latent rows (MLA)"},
    {.computed = uneven_trade},
    {.computed = unplaceable},
    {kRepeatsRows, kBuffersRows, "read=repeat copies encoded rows, and the codec keeps others raw"},
    {kScoresTokens, kRepeatsRows,
     "retention '{retention}' adds up the weights of all queries of a kv head, which read=repeat separates"},
    {kScoresTokens, kSelects,
     "selection '{selection}' leaves rows unread, and the retention asks what attention gives to each"},
    {kCutsPrompt, kSelects,
     "selection '{selection}' leaves rows unread, and the retention asks what attention gives to each"},
    {kSelects, kRotatesAtRead,
     "selection '{selection}' leaves rows unread, and positions=cache rotates every key at each read"},
    {kRotatesAtRead, kTiered,
     "positions=cache rotates all keys at each read, and tiers read them a chunk at a time"},
    {kSelects, kRepeatsRows,
     "selection '{selection}' chooses once for a kv head, and read=repeat copies all of its rows for every "
     "query head"},
    {kWeighsRows, kTiered,
     "selection '{selection}' weighs every row at each step, and those in a tier's file are there a chunk at "
     "a time"},
    {kSelects, kReencodes,
     "selection '{selection}' chooses by rows as they are stored, and a tier's own codec stores them anew"},
    {kSelectsInFiles, kDecodesCopy,
     "selection '{selection}' reads single rows of a tier's file, and read=copy decodes those in memory "
     "alone"},
    {kPrefillsFull, kDropsTokens,
     "prefill=full lets a prompt attend to all of its rows, and retention '{retention}' drops some"},
    {kPrefillsFull, kSelects,
     "prefill=full lets a prompt attend to all of its rows, and selection '{selection}' leaves some unread"},
    {kPrefillsFull, kTiered,
     "prefill=full lets a prompt attend to its rows at once, and tiers read them a chunk at a time"},
    {kPrefillsFull, kOnGpu, "prefill=full has kernels for the CPU alone; use --device cpu"},
    {kPrefillsFull, kRotatesAtRead,
     "prefill=full lets a prompt attend to its rows as they come, and positions=cache rotates stored ones"},
    {.computed = unselectable},
    {kMultipliesInt8, kOnGpu, "arithmetic=int8 has kernels for the CPU alone; use --device cpu"},
    {kMultipliesInt8, kDecodesCopy,
     "arithmetic=int8 multiplies codes, and read=copy makes floats of them first"},
    {kMultipliesInt8, kRotatesAtRead,
     "arithmetic=int8 multiplies codes, and positions=cache makes floats of keys"},
    {kScoresTokens, kMultipliesInt8,
     "retention '{retention}' chooses rows by attention weights, which arithmetic=int8 would change"},
    {.computed = unencodable},
    {kReencodes, kOnGpu,
     "a GPU's kernels read all tiers with one codec; leave out warm_codec and disk_codec"},
    {kLongPieces, kOnGpu, "a GPU's kernels take pieces of {split_rows} rows; leave out chunk"},
    {kRagged, kOnGpu, "heads that keep different numbers of rows are for the CPU alone; use --device cpu"},
    {.computed = unstorable},
    {kSelects, kOnGpu, "selection '{selection}' has kernels for the CPU alone; use --device cpu"},
    {kLatent, kOnGpu, "latent rows (MLA) are not kept on a GPU yet"},
    {kRotatesChannels, kLatent,
     "of a latent row (MLA) the first part is the value, and the codec's rotation would mix it with the "
     "rest"},
    {kRemovesMean, kOnGpu, "k_mean=removed has kernels for the CPU alone; use --device cpu"},
    {kRemovesMean, kRotatesAtRead,
     "k_mean=removed takes from all keys what no score feels, which positions=cache would rotate apart"},
    {kRemovesMean, kLatent,
     "of a latent row (MLA) the first part is the value, which k_mean=removed would change"},
    {kRotatesAtRead, kLatent,
     "positions=cache rotates whole keys, and of a latent row (MLA) only the last part is one"},
};

// Sequences share blocks of equal rows, which stay as they were written.
constexpr Refusal kUnshareable[] = {
    {kAlways, kOwnsBlocks, "placement '{placement}' has no blocks that sequences could share"},
    {kAlways, kDropsTokens, "retention '{retention}' overwrites rows, and shared ones stay as they are"},
    {kAlways, kBuffersRows, "codec '{codec}' keeps rows of a sequence raw, outside all blocks"},
    {kAlways, kReencodes,
     "a tier has a codec of its own, and rows that are encoded anew are not those that a sequence computes"},
};

std::string filled_in(std::string text, const Pairing& of) {
  const std::pair<const char*, std::string> names[] = {
      {"{placement}", of.spec.placement.name},
      {"{codec}", of.spec.codec.name},
      {"{retention}", of.spec.retention.name},
      {"{selection}", of.spec.selection.name},
      {"{unit_rows}", std::to_string(of.codec.unit_rows())},
      {"{split_rows}", std::to_string(kSplitRows)},
  };
  for (const auto& [name, value] : names) {
    if (const size_t at = text.find(name); at != std::string::npos)
      text.replace(at, std::string_view(name).size(), value);
  }
  return text;
}

std::string first_reason(const Pairing& of, std::span<const Refusal> refusals) {
  for (const Refusal& refusal : refusals) {
    std::string reason;
    if (refusal.computed) {
      reason = refusal.computed(of);
    } else if (refusal.asked(of) && refusal.lacking(of)) {
      reason = refusal.reason;
    }
    if (!reason.empty()) return filled_in(reason, of);
  }
  return "";
}

}  // namespace

bool rotates_at_read(const Spec& spec) {
  const RetentionEntry& retention = retention_of(spec);
  return retention.rotates_at_read && retention.rotates_at_read(spec.retention);
}

bool rotates_at_read(const Cache& cache) {
  for (int layer = 0; layer < cache.shape().layers; ++layer) {
    if (cache.keeps_rows(layer)) return rotates_at_read(cache.spec(layer));
  }
  return false;
}

bool has_tiers(const Spec& spec) { return tier_settings(spec).has_value(); }

std::optional<TierSettings> tier_settings(const Spec& spec) {
  if (spec.placement.name.empty() || !placement_of(spec).tiers) return std::nullopt;
  return placement_of(spec).tiers->settings(spec.placement);
}

std::optional<PoolSettings> pool_settings(const Spec& spec) {
  const PlacementEntry& placement = placement_of(spec);
  if (!placement.pool) return std::nullopt;
  return placement.pool(spec.placement);
}

Spec with_pool(Spec spec, int64_t blocks) {
  placement_of(spec).set_pool_blocks(spec.placement, blocks);
  return spec;
}

std::vector<Codec> stored_codecs(const Spec& spec) {
  std::vector<Codec> codecs{codec_of(spec).make(spec.codec)};
  if (const TierTraits* tiers = placement_of(spec).tiers) {
    for (const Codec& codec : tiers->codecs(spec.placement, codecs.front())) codecs.push_back(codec);
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
  return ResidualBuffer::waits(codec) ? "older rows are encoded and no longer there raw" : "";
}

std::string unshareable_reason(const Spec& spec) {
  return first_reason({spec, CacheShape{}, nullptr}, kUnshareable);
}

std::string unsupported_reason(const Spec& spec, const CacheShape& shape, const cuda::Gpu* gpu) {
  return first_reason({spec, shape, gpu}, kRefusals);
}

std::string unsupported_reason(const Spec& spec, int head_dim, const cuda::Gpu* gpu) {
  return unsupported_reason(spec, CacheShape{.head_dim = head_dim}, gpu);
}

// The largest head_dim is a multiple of every block, so it has only the reasons that all have.
std::string unsupported_reason(const Spec& spec) { return unsupported_reason(spec, kMaxHeadDim); }

}  // namespace kv
