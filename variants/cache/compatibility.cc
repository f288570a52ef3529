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
  const Codec codec = codec_of(spec).make(spec.codec);
};

// A property of stages, a geometry or a device.
using Trait = bool (*)(const Pairing& of);
constexpr Trait kDropsTokens = [](const Pairing& of) { return !of.retention.keeps_all; };
constexpr Trait kDropsSingles = [](const Pairing& of) { return kDropsTokens(of) && !of.retention.ring; };
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
constexpr Trait kLongPieces = [](const Pairing& of) {
  return kTiered(of) && of.placement.tiers->settings(of.spec.placement).piece_rows != kSplitRows;
};
constexpr Trait kOwnsBlocks = [](const Pairing& of) { return !of.placement.shares_blocks(); };
constexpr Trait kSelects = [](const Pairing& of) { return !of.selection.reads_all(); };
constexpr Trait kLatent = [](const Pairing& of) { return of.shape.is_latent(); };  // MLA
constexpr Trait kOnGpu = [](const Pairing& of) { return of.gpu != nullptr; };
constexpr Trait kCallsCodec = [](const Pairing& of) { return !of.codec.function.empty(); };
constexpr Trait kLearned = [](const Pairing& of) { return of.codec.learned(); };
constexpr Trait kLearnedKeys = [](const Pairing& of) { return of.codec.learned_keys(); };
constexpr Trait kRotatesBefore = [](const Pairing& of) { return !rotates_at_read(of.spec); };
constexpr Trait kAlways = [](const Pairing&) { return true; };

// A number that only a model's layer can give: resolve() (variants/model_cache) has it.
std::string unknown_number(const Pairing& of) {
  for (const Parameter& p : of.retention.parameters) {
    if (p.word.empty() || of.spec.retention.text(std::string(p.name)) != p.word) continue;
    return "'" + std::string(p.name) + "=" + std::string(p.word) + "' is the " + std::string(p.name) +
           " of a model's layer, but this layer has none: give a number";
  }
  return "";
}

// Heads that trade rows hold the bytes of the closed form only if memory comes by divisors of the rows they trade.
std::string uneven_trade(const Pairing& of) {
  if (!of.retention.traded_rows || of.placement.tiers) return "";
  const int64_t traded = of.retention.traded_rows(of.spec.retention);
  const std::string trade = "heads of retention '{retention}' trade " + std::to_string(traded) +
                            " rows at a time, but placement '{placement}' allocates ";
  const auto grain_of = of.placement.segment_rows ? of.placement.segment_rows : of.placement.grain_rows;
  if (!grain_of) return trade + "varying numbers of rows";
  const int64_t grain = grain_of(of.spec.placement);
  return traded % grain == 0 ? "" : trade + std::to_string(grain) + ": make `step` a multiple of that";
}

// Rows that stay raw are those of the first slots, which have to stay the first tokens'.
std::string moving_first(const Pairing& of) {
  if (of.codec.first == 0 || of.retention.keeps_all) return "";
  const int64_t sinks = of.retention.sinks ? of.retention.sinks(of.spec.retention) : 0;
  if (of.codec.first <= sinks) return "";
  const std::string first = std::to_string(of.codec.first);
  return "first=" + first + " keeps the first rows raw, and retention '{retention}' " +
         (of.retention.sinks ? "keeps only `sinks` of them: set sinks to " + first + " or more"
                             : "puts other tokens' rows in their slots");
}

// A window drops whole units of such a codec.
std::string unfit_window(const Pairing& of) {
  const RowUnits units = of.codec.units();
  if (!of.retention.ring || (units.rows == 1 && units.waiting == 0)) return "";
  const int64_t window = of.spec.retention.rows("window", of.shape.max_tokens),
                sinks = of.spec.retention.integer("sinks"), least = UnitRing::least_window(units);
  const std::string rows = std::to_string(units.rows);
  if (window < least)
    return "window=" + std::to_string(window) + " has no room for a group of " + rows +
           " rows beside the newest rows, which codec '{codec}' keeps raw: make it " + std::to_string(least) +
           " or more";
  if ((sinks - units.first) % units.rows == 0) return "";
  return "sinks=" + std::to_string(sinks) + " cuts a group of " + rows +
         " rows, which codec '{codec}' encodes together: keep the sinks raw with first=" +
         std::to_string(sinks) + ", or make `sinks` a multiple of " + rows;
}

std::string unplaceable(const Pairing& of) {
  return of.placement.refuses ? of.placement.refuses(of.spec.placement, of.codec, of.retention) : "";
}

std::string unselectable(const Pairing& of) {
  const std::string reason = of.selection.refuses ? of.selection.refuses(of.codec, of.retention) : "";
  return reason.empty() ? "" : "selection '{selection}' " + reason;
}

std::string unencodable(const Pairing& of) {
  std::string reason = unsupported_reason(of.codec.k, of.shape.head_dim);
  if (reason.empty() && !of.shape.is_latent()) reason = unsupported_reason(of.codec.v, of.shape.head_dim);
  for (const Encoding& side : {of.codec.k, of.codec.v}) {
    if (reason.empty() && of.gpu && !descriptor_of(side.format).on_gpu)
      reason = encoding_name(side) + " runs only on the CPU; use --device cpu";
  }
  return reason;
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
    {kGroupsRows, kDropsSingles,
     "retention '{retention}' drops single tokens, but codec '{codec}' encodes groups of {unit_rows} rows "
     "together, and a new row in a dropped one's place would have the others encoded a second time"},
    {kDelaysRows, kDropsSingles,
     "retention '{retention}' drops single tokens, but codec '{codec}' keeps its newest rows raw until newer "
     "ones come"},
    {.computed = moving_first},
    {.computed = unfit_window},
    {kKeepsFirst, kTiered,
     "first=N keeps rows before all others, but tiers read the oldest rows a chunk at a time"},
    {kKeepsFirst, kOnGpu, "first=N runs only on the CPU; use --device cpu"},
    {kRotatesKeys, kRotatesAtRead,
     "positions=cache applies RoPE to keys when they are read, but the codec's rotation has mixed the pairs "
     "of "
     "channels that RoPE rotates"},
    {kLearnedKeys, kRotatesBefore,
     "learned codebooks are for keys before RoPE: use a retention with positions=cache, such as "
     "full(positions=cache)"},
    {kLearned, kTiered, "learned codebooks differ by layer and head, but tiers read pieces of all heads"},
    {kLearned, kLatent, "there are no learned codebooks for latent rows (MLA)"},
    {.computed = uneven_trade},
    {.computed = unplaceable},
    {kRepeatsRows, kBuffersRows, "read=repeat copies encoded rows, but the codec keeps some rows raw"},
    {kScoresTokens, kRepeatsRows,
     "retention '{retention}' adds up the weights of all queries of a kv head, but read=repeat separates "
     "them"},
    {kScoresTokens, kSelects,
     "selection '{selection}' leaves rows unread, but the retention needs the attention weight of each row"},
    {kCutsPrompt, kSelects,
     "selection '{selection}' leaves rows unread, but the retention needs the attention weight of each row"},
    {kSelects, kRotatesAtRead,
     "selection '{selection}' leaves rows unread, but positions=cache rotates every key at each read"},
    {kRotatesAtRead, kTiered,
     "positions=cache rotates all keys at each read, but tiers read them a chunk at a time"},
    {kSelects, kRepeatsRows,
     "selection '{selection}' chooses once per kv head, but read=repeat copies all of its rows for every "
     "query "
     "head"},
    {kSelects, kTiered,
     "selection '{selection}' reads single rows, but a tier's file is read a chunk at a time"},
    {kPrefillsFull, kDropsTokens,
     "prefill=full lets a prompt attend to all of its rows, but retention '{retention}' drops some"},
    {kPrefillsFull, kSelects,
     "prefill=full lets a prompt attend to all of its rows, but selection '{selection}' leaves some unread"},
    {kPrefillsFull, kTiered,
     "prefill=full lets a prompt attend to all of its rows at once, but tiers read them a chunk at a time"},
    {kPrefillsFull, kOnGpu, "prefill=full runs only on the CPU; use --device cpu"},
    {kPrefillsFull, kRotatesAtRead,
     "prefill=full lets a prompt attend to rows before they are stored, but positions=cache rotates stored "
     "rows"},
    {kCallsCodec, kTiered, "a codec in Python leaves its rows decoded in memory: there is nothing for tiers"},
    {kCallsCodec, kOnGpu, "a codec in Python runs only on the CPU; use --device cpu"},
    {.computed = unselectable},
    {kMultipliesInt8, kOnGpu, "arithmetic=int8 runs only on the CPU; use --device cpu"},
    {kMultipliesInt8, kDecodesCopy,
     "arithmetic=int8 multiplies codes, but read=copy first converts them to floats"},
    {kMultipliesInt8, kRotatesAtRead,
     "arithmetic=int8 multiplies codes, but positions=cache converts keys to floats"},
    {kScoresTokens, kMultipliesInt8,
     "retention '{retention}' chooses rows by attention weights, which arithmetic=int8 would change"},
    {.computed = unencodable},
    {kLongPieces, kOnGpu, "the GPU kernels take pieces of {split_rows} rows; leave out chunk"},
    {kRagged, kOnGpu, "heads that keep different numbers of rows run only on the CPU; use --device cpu"},
    {.computed = unstorable},
    {kSelects, kOnGpu, "selection '{selection}' runs only on the CPU; use --device cpu"},
    {kLatent, kOnGpu, "latent rows (MLA) are not yet supported on a GPU"},
    {kRotatesChannels, kLatent,
     "the first part of a latent row (MLA) is the value, and the codec's rotation would mix it with the "
     "rest"},
    {kRemovesMean, kDropsTokens,
     "k_mean=removed takes the mean of the first rows, but retention '{retention}' drops rows, and no FP64 "
     "reference checks both"},
    {kRemovesMean, kOnGpu, "k_mean=removed runs only on the CPU; use --device cpu"},
    {kRemovesMean, kRotatesAtRead,
     "k_mean=removed subtracts the same vector from all keys, but positions=cache would rotate it "
     "differently for each"},
    {kRemovesMean, kLatent,
     "the first part of a latent row (MLA) is the value, which k_mean=removed would change"},
    {kRotatesAtRead, kLatent,
     "positions=cache rotates whole keys, but only the last part of a latent row (MLA) is a key"},
};

// Sequences share blocks of equal rows, which stay as they were written.
constexpr Refusal kUnshareable[] = {
    {kAlways, kOwnsBlocks, "placement '{placement}' has no blocks that sequences can share"},
    {kAlways, kDropsTokens, "retention '{retention}' overwrites rows, but shared rows must not change"},
    {kAlways, kBuffersRows, "codec '{codec}' keeps raw rows outside the blocks"},
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

std::vector<std::string> functions_of(const Spec& spec) {
  std::vector<std::string> all;
  if (const std::string of = codec_of(spec).make(spec.codec).function; !of.empty()) all.push_back(of);
  if (retention_of(spec).function) all.push_back(retention_of(spec).function(spec.retention));
  return all;
}

double kernel_error_bound(const Spec& spec) {
  const Codec codec = codec_of(spec).make(spec.codec);
  return attention_error_bound(codec.k, codec.v, codec.arithmetic);
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
