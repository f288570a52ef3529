// The closed forms, from the formats' sizes and the entries' own.
#include "variants/cache/predicted_bytes.h"

#include <algorithm>

#include "variants/cache/compatibility.h"
#include "variants/cache/layout.h"
#include "variants/cache/prefill.h"
#include "variants/list.h"
#include "variants/placement/read_copies.h"
#include "variants/storage/residual_buffer.h"

namespace kv {
namespace {

// The inputs of the closed forms.
struct Prediction {
  const Spec& spec;
  const CacheShape& shape;
  Codec codec;
  PlacementContext context;

  Prediction(const Spec& spec_, const CacheShape& shape_)
      : spec(spec_),
        shape(shape_),
        codec(codec_for(spec, shape)),
        context(placement_context(spec, shape, codec, nullptr)) {}

  int64_t residual_bytes() const {
    return ResidualBuffer::bytes(codec, shape.kv_heads, shape.head_dim, shape.is_latent());
  }

  // Heads that the placement has each for itself, or one for all.
  int placed_heads() const { return context.head_units.empty() ? 1 : shape.kv_heads; }
  // The context that the placement's closed forms get for the rows placed with this head.
  PlacementContext context_of(int head) const {
    PlacementContext own = context;
    own.max_units = context.most_units(head);
    return own;
  }
  int64_t slots(int64_t tokens, int64_t prompt, int head) const {
    return retention_of(spec).slots(spec.retention,
                                    {shape.max_tokens, tokens, prompt, head, shape.kv_heads, codec.units()});
  }
  OuterTiers outer_tiers(int64_t tokens) const {
    const TierTraits* tiers = placement_of(spec).tiers;
    return tiers ? tiers->layer_tiers(spec.placement, context, units(tokens, 0, 0)) : OuterTiers();
  }
  // Units of one layer's head that lie in the placement.
  int64_t units(int64_t tokens, int64_t prompt, int head) const {
    return codec.units().encoded(slots(tokens, prompt, head));
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

}  // namespace

StoredValues stored_values(const Spec& spec, const CacheShape& shape) {
  const Prediction of(spec, shape);
  const int64_t tokens = shape.max_tokens;
  double kept = 0.0;
  for (int head = 0; head < of.placed_heads(); ++head) kept += static_cast<double>(of.slots(tokens, 0, head));
  if (of.context.head_units.empty()) kept *= shape.kv_heads;
  const double rows = kept * shape.layers;
  return {.values = rows * shape.head_dim * (shape.is_latent() ? 1 : 2),
          .bits = rows * 8.0 * static_cast<double>(of.context.unit_bytes()) /
                  static_cast<double>(of.context.unit.rows)};
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
  const ReadMode mode = placement_of(spec).read_mode(spec.placement);
  int64_t bytes = 0;
  for (const int64_t tokens : lengths) {
    for (int head = 0; head < of.placed_heads(); ++head)
      bytes += ReadCopies::bytes(mode, of.context, of.units(tokens, 0, head));
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

Queries Queries::in(int64_t context) const {
  const int64_t more = std::max<int64_t>(0, context - length);
  return {length + more, first > 0 ? first + more : 0, prompt > 0 ? prompt + more : 0, step};
}

RowShares row_shares(const Spec& spec, const Spec& full, const CacheShape& shape, const Queries& queries) {
  const Prediction of(spec, shape), whole(full, shape);
  const SelectionEntry& selection = selection_of(spec);
  const bool is_raw = of.codec.is_raw();
  const int64_t first_step = std::min(queries.length, queries.prompt > 0 ? queries.prompt : queries.step),
                prompt = first_step > 1 ? first_step : 0;
  // Rows of a query at token `at` that are encoded once the sequence has `tokens`, if the head keeps `kept`.
  const auto encoded = [&](int64_t at, int64_t tokens, int64_t kept) -> int64_t {
    if (tokens <= prompt && prefills_full(spec)) return 0;
    if (is_raw) return 0;
    const RowUnits units = of.codec.units();
    if (!ResidualBuffer::waits(of.codec)) return std::max<int64_t>(0, kept - units.first);
    return std::clamp<int64_t>(kept - units.first, 0, units.encoded(kept + tokens - at - 1) * units.rows);
  };
  RowShares sum;
  for (int64_t begin = 0, end = first_step; begin < queries.length;
       begin = end, end = std::min(queries.length, end + queries.step)) {
    for (int64_t at = std::max(begin, queries.first); at < end; ++at) {
      const auto rows = static_cast<double>(whole.slots(at + 1, 0, 0)) * of.placed_heads();
      for (int head = 0; head < of.placed_heads(); ++head) {
        const bool is_whole = at < prompt && retention_of(spec).cuts_prompt;
        const int64_t kept = is_whole ? at + 1 : of.slots(at + 1, prompt, head);
        const auto read = static_cast<double>(selection.rows_read(spec.selection, kept, shape.max_tokens));
        sum.encoded += static_cast<double>(encoded(at, end, kept)) * read / static_cast<double>(kept) / rows;
        sum.dropped += 1.0 / of.placed_heads() - read / rows;
      }
    }
  }
  const auto count = static_cast<double>(queries.length - queries.first);
  return {sum.encoded / count, std::max(0.0, sum.dropped / count)};
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
                  raw = of.slots(tokens, 0, 0) - units * of.context.unit.rows;  // in the residual buffer
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

}  // namespace kv
