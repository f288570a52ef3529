// tiered: the newest rows in fast memory, older ones in a second pool, the oldest in a file (tiers.h).
//
// Rows lie in chunks of `chunk` rows, a multiple of the length of attention's partial results: all are whole splits, so the
// output has the bits of every other placement. A GPU's kernels get the second pool's chunks through the GPU's memory, and
// the next layer's first chunks come while a layer's last are computed.
//
// Reads are real. `io=buffered` goes through the page cache, which may hold the file; `io=direct` bypasses it, so the two
// arms separate the page cache from the disk. `link_gbps` slows reads to a stated rate, as of a link or another disk.
// Retentions that evict are refused: their slots are not in order of age.
//
// Hot and warm chunks are payload; the file is counted apart, as disk. Chunks that are read ahead are workspace.
#include "kernels/attention.h"
#include "variants/list.h"
#include "variants/placement/tiers.h"

namespace kv::placement {
namespace {

int64_t tier_chunk(const Stage& stage) { return stage.integer("chunk"); }

TierSettings settings_of(const Stage& stage) {
  return {.hot_rows = stage.integer("hot"),
          .warm_rows = stage.integer("warm"),
          .piece_rows = tier_chunk(stage),
          .folder = SpillFile::folder(stage.text("dir")),
          .direct_io = stage.text("io") == "direct",
          .link_gbps = static_cast<double>(stage.hundredths("link_gbps")) / 100.0};
}

OuterTiers layer_tiers(const Stage& stage, const PlacementContext& context, int64_t used) {
  const TierBorders borders(settings_of(stage), used * context.unit.rows);
  const int64_t units = tier_chunk(stage) / context.unit.rows, warm = borders.not_hot - borders.cold;
  return {.warm_units = warm * units,
          .disk_units = borders.cold * units,
          .warm_bytes = planes_bytes(context, warm * units),
          .disk_bytes = borders.cold * slot_bytes(context, units)};
}

constexpr TierTraits kTraits{.settings = settings_of, .layer_tiers = layer_tiers};

std::string tiered_refuses(const Stage& stage, const Codec& codec, const RetentionEntry& retention) {
  if (!retention.keeps_all) {
    return "retention '" + std::string(retention.name) +
           "' puts a new token's row where a dropped one's was, and a tier is chosen by age: new rows would "
           "lie in the file";
  }
  if (axis_order(stage) == AxisOrder::kRowMajor)
    return "pieces of a file are read head by head, so a head's rows have to lie side by side: layout=bhsd";
  if (tier_chunk(stage) % kSplitRows != 0) {
    return "attention takes a file's rows in pieces of " + std::to_string(kSplitRows) +
           ", so chunk has to be a multiple of that, not " + stage.text("chunk");
  }
  const std::string straddles = group_straddles("a chunk", tier_chunk(stage), codec.unit_rows());
  if (!straddles.empty()) return straddles;
  return SpillFile::refuses(settings_of(stage).folder, settings_of(stage).direct_io);
}

}  // namespace

const PlacementEntry tiered{
    {.name = "tiered",
     .help = "newest rows in fast memory, older ones in a second pool, the oldest in a file",
     .source = "FlexGen (arXiv:2303.06865), LMCache",
     .parameters = {Parameter::integer("hot", "16384", 1, 1 << 30, {1}, "newest rows kept in fast memory"),
                    Parameter::integer("warm", "65536", 0, 1 << 30, {}, "older rows kept in the second pool"),
                    Parameter::text("dir", "", "folder of the file; empty: $TMPDIR, else /tmp"),
                    Parameter::choice("io", {"buffered", "direct"}, "through the page cache, or past it"),
                    Parameter::integer("chunk", "512", 512, 65536, {1024},
                                       "rows that move together, and of one request"),
                    Parameter::decimal("link_gbps", "0", 0, 1000000, {5000},
                                       "slow the file's reads to this many GB/s; 0: do not"),
                    layout_parameter()}},
    {.segment_rows = tier_chunk,
     .layer_bytes =
         [](const Stage& stage, const PlacementContext& context, int64_t used) {
           return segments_bytes(context, tier_chunk(stage), used) -
                  planes_bytes(context, layer_tiers(stage, context, used).disk_units);
         },
     .refuses = tiered_refuses,
     .tiers = &kTraits}};

}  // namespace kv::placement
