// The codecs of tiers that have their own, and the way of rows from one tier to the next.
#pragma once

#include <array>
#include <string>

#include "variants/codec/parameters.h"
#include "variants/core/placement.h"

namespace kv {

// A level is a tier's codec: 0 as the cache stores rows, 1 the warm tier, 2 the file. A row passes through every
// level's codec in order, also where it skips a tier, so that its bits depend on the level alone. A side that
// two successive levels store alike is copied as it is.
class TierLevels {
 public:
  static constexpr int kLevels = 3;
  // Values of the parameters warm_codec and disk_codec: codecs that store a row at a time. `same` is the codec of the
  // level before.
  static Parameter parameter(std::string_view name, std::string_view help);
  static std::array<Codec, 2> codecs(const Stage& stage, const Codec& of_cache);
  // Why rows of these codecs cannot be encoded anew, or empty if they can or never are.
  static std::string refuses(const Stage& stage, const Codec& codec);

  // The cache's context. This outlives all planes that are made with its contexts.
  TierLevels(const Stage& stage, const PlacementContext& context);
  const PlacementContext& operator[](int level) const { return contexts_[static_cast<size_t>(level)]; }
  bool differ(int from, int to) const;

  // `units` of one head, at equal distances of their own size, from one level to another. All of the host.
  void encode(int from, const UnitAddress& rows, int to, const UnitAddress& out, int64_t units) const;

 private:
  std::array<PlacementContext, kLevels> contexts_;
};

}  // namespace kv
