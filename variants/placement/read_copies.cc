#include "variants/placement/read_copies.h"

#include <utility>

namespace kv {
namespace {

int repeats_of(ReadMode mode, const PlacementContext& context) {
  return mode == ReadMode::kRepeat ? context.group : 1;
}

}  // namespace

ReadCopies::ReadCopies(ReadMode mode, AxisOrder order, const PlacementContext& context)
    : repeats_(repeats_of(mode, context)),
      on_(mode == ReadMode::kCopy || repeats_ > 1),
      order_(order),
      context_(context) {}

Parameter ReadCopies::parameter(std::vector<std::string_view> choices) {
  const bool copies = choices.size() > 2;
  return Parameter::choice("read", std::move(choices),
                           copies ? "in place, from one copy of all rows, or from one for every query head"
                                  : "in place, or from a copy of all rows for every query head");
}

ReadMode ReadCopies::mode(const Stage& stage) {
  const std::string& read = stage.text("read");
  return read == "repeat" ? ReadMode::kRepeat : read == "copy" ? ReadMode::kCopy : ReadMode::kInPlace;
}

int64_t ReadCopies::bytes(ReadMode mode, const PlacementContext& context, int64_t units) {
  const int repeats = repeats_of(mode, context);
  return mode == ReadMode::kCopy || repeats > 1 ? planes_bytes(context, units) * repeats : 0;
}

const SegmentRows& ReadCopies::renew(int sequence, int layer, int64_t units) {
  if (static_cast<size_t>(sequence) >= copies_.size()) copies_.resize(static_cast<size_t>(sequence) + 1);
  copies_[sequence].resize(static_cast<size_t>(context_.layers));
  Copy& copy = copies_[sequence][layer];
  copy = {};
  const int heads = context_.heads * repeats_;
  std::array<int64_t, kPlanes> bytes = context_.unit.bytes;
  for (int64_t& b : bytes) b *= heads * units;
  copy.memory = RowMemory(*context_.memory, bytes, ByteKind::kWorkspace, ByteKind::kWorkspace);
  copy.rows = {&context_.unit, heads, order_, units, copy.memory.plane()};
  return copy.rows;
}

void ReadCopies::close(int sequence) {
  if (static_cast<size_t>(sequence) < copies_.size()) copies_[sequence].clear();
}

}  // namespace kv
