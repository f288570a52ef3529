#include "harness/planner/prefix_sharing.h"

#include <new>
#include <stdexcept>
#include <string>

namespace kv::planner {

PrefixSharing::PrefixSharing(RowAllocator& rows, int64_t unit_tokens)
    : rows_(rows), unit_tokens_(unit_tokens), cache_(static_cast<BlockOwner&>(*this)) {
  if (const std::string reason = rows.refuses_sharing(unit_tokens); !reason.empty())
    throw std::invalid_argument("prefixes cannot be shared: " + reason);
  rows.share_units_of(unit_tokens);
}

int64_t PrefixSharing::open(int sequence, std::span<const int32_t> units) {
  opening_ = sequence;
  try {
    cache_.add_sequence(units);
  } catch (const std::bad_alloc&) {
    return -1;
  }
  return adopted_ * unit_tokens_;
}

SequenceId PrefixSharing::adopt(std::span<const SharedBlock> units) {
  if (!rows_.open_with(opening_, units)) throw std::bad_alloc();
  adopted_ = std::ssize(units);
  return opening_;
}

}  // namespace kv::planner
